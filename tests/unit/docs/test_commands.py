"""Commands in pages and messages against the command line: their names and options exist."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest

import api
from api.problems import not_found
from leasehold.cli.lazy import load
from leasehold.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
#: Where the packages are: beside the tests, or installed from a wheel.
PACKAGES = Path(api.__file__).parents[1]
FOLDERS = ("agent", "api", "leasehold", "planner", "policies", "scheduler", "simulator")
#: The change log also names commands of releases before.
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md"))
    if path.name != "CHANGELOG.md" and path.relative_to(ROOT).parts[0] != "build"
)
#: What ends a command in a shell, or stands for the rest of it.
ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "..."}
#: A synopsis has alternatives; the reference is compared with the options elsewhere.
SYNOPSIS = re.compile(r"leasehold [\w-]+(\||.* \[)")


def blocks(text: str) -> list[str]:
    """Return the commands of fenced blocks, with the lines that continue them."""
    found = []
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        joined = re.sub(r"\\\n(>\s)?\s*", " ", block)
        found += re.findall(r"^(?:[$>#]\s+)?\s*(leasehold [a-z].*)$", joined, re.MULTILINE)
    return [line for line in found if not SYNOPSIS.match(line)]


def between_backticks(text: str) -> list[str]:
    """Return the commands between backticks."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    found = re.findall(r"(?<!`)`(leasehold [a-z][^`\n]*)`", text)
    return [line for line in found if not SYNOPSIS.match(line)]


def fault(line: str, *, in_text: bool) -> str:
    """Return why the command line would refuse a command; empty if it would not.

    Args:
        line: the command.
        in_text: whether it may be cut off behind an option, which the text is about.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quotation mark of the text around it
        words = line.split()
    name, *words = takewhile(lambda word: word not in ENDS, words[1:])
    if name not in COMMANDS:
        return f"there is no command {name}"
    command = load(name, COMMANDS[name])
    context = command.make_context(name, [], resilient_parsing=True)
    while (children := getattr(command, "commands", None)) and words[:1] not in ([], ["--help"]):
        if words[0] not in children:
            return f"there is no command {name} {words[0]}"
        name, command = f"{name} {words[0]}", children[words[0]]
        context, words = command.make_context(name, [], resilient_parsing=True), words[1:]
    context.resilient_parsing = False  # it was for arguments that a context asks for
    last = words[-1] if words else ""
    try:
        command.make_parser(context).parse_args(args=words)
    except Exception as error:  # noqa: BLE001 - typer's copy of click has its own classes
        cut_off = in_text and last.startswith("--") and "requires an argument" in str(error)
        return "" if cut_off else f"{name}: {error}"
    return ""


def faults(text: str) -> dict[str, str]:
    """Return the commands of a text that cannot be given, with the reason."""
    found = {line: fault(line, in_text=False) for line in blocks(text)}
    found |= {line: fault(line, in_text=True) for line in between_backticks(text)}
    return {line: said for line, said in found.items() if said}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_exist_with_their_options(page):
    assert faults(page.read_text()) == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_so_do_those_that_messages_name(folder):
    texts = [path.read_text() for path in sorted((PACKAGES / folder).rglob("*.py"))]
    assert texts
    assert faults("\n".join(texts)) == {}


def test_so_do_those_of_the_page():
    texts = [path.read_text() for path in sorted((PACKAGES / "api/pages/templates").glob("*.html"))]
    found = re.findall(r"<code>(leasehold [^<]+)</code>", re.sub(r"{{.*?}}", "x", "".join(texts)))
    assert len(found) >= 5
    assert {line: said for line in found if (said := fault(line, in_text=True))} == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("leasehold jobs --nope", "No such option: --nope"),
        ("leasehold submit --name -- true", ""),
        ("leasehold submit --name", "requires an argument"),
        ("leasehold project sett", "no command project sett"),
        ("leasehold rejoice", "no command rejoice"),
    ],
)
def test_what_cannot_be_given_is_found(line, said):
    assert said in fault(line, in_text=False)
    assert bool(said) == bool(faults(f"```console\n$ {line}\n```"))


@pytest.mark.parametrize("what", ["job", "node", "policy", "reservation", "token", "webhook"])
def test_an_answer_about_a_missing_name_says_what_lists_the_names(what):
    said = str(not_found(what, "x").detail)
    assert said.startswith(f"there is no {what} 'x'; `leasehold ")
    assert faults(said) == {}
    assert between_backticks(said)
