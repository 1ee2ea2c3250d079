"""The documentation against the tree: links lead somewhere, and no option goes unmentioned."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from leasehold.cli.lazy import load
from leasehold.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in _anchors(file), f"{page.name} links to {target}"


def test_every_page_can_be_reached_from_the_index():
    seen, todo = set(), [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = LINK.findall(page.read_text())
        todo += [(page.parent / t.partition("#")[0]).resolve() for t in links if "://" not in t]
    # The template of design records is reached from their index too.
    assert set((ROOT / "docs").rglob("*.md")) <= seen


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_reference(name):
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for option in _options(load(name, COMMANDS[name])):
        assert f"{option}" in reference, f"{name} {option}"


def test_the_table_of_commands_has_every_command():
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    table = reference.partition("| command | effect |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| \[(.+?)\]\(", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)} == set(COMMANDS)


def _options(command) -> set[str]:
    children = getattr(command, "commands", {})
    if children:
        return {option for child in children.values() for option in _options(child)}
    return {
        option
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and option != "--help"
    }


def test_options_are_found_in_groups_too():
    assert "--jobs" in _options(load("traces", COMMANDS["traces"]))


def test_every_dependency_says_why_it_is_here_and_for_whom():
    project, sdk = (
        tomllib.loads((ROOT / file).read_text())
        for file in ("pyproject.toml", "sdk/pyproject.toml")
    )
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    wanted: dict[str, list[str]] = {}
    for requirement in sdk["project"]["dependencies"]:
        wanted[re.match(r"[\w.-]+", requirement)[0]] = ["sdk"]
    extras = project["project"]["optional-dependencies"]
    for extra in extras:
        assert f"| `leasehold-scheduler[{extra}]` |" in page
        for requirement in extras[extra]:
            if requirement.startswith("leasehold-scheduler["):  # an extra made of others
                continue
            wanted.setdefault(re.match(r"[\w.-]+", requirement)[0], []).append(extra)
    described = {}
    for names, whom in re.findall(
        r"^\| ([a-z0-9, -]+) \| ([a-z, ]+) \| .+ \|$", page, re.MULTILINE
    ):
        described |= dict.fromkeys(names.split(", "), whom)
    described.pop("package")
    assert described == {name: ", ".join(whom) for name, whom in wanted.items()}
    groups = project["dependency-groups"]
    for requirement in groups["test"] + groups["check"] + groups["docs"]:
        package = re.match(r"[\w.-]+", requirement)[0]
        assert re.search(rf"\b{re.escape(package)}\b", page), package


def test_the_layers_of_the_design_page_are_those_that_are_checked():
    page = (ROOT / "docs" / "explanation" / "design.md").read_text()
    rows = re.findall(r"^\| \d+ \| (.+?) \|", page, re.MULTILINE)
    shown = [set(re.findall(r"`([\w.]+)`", row)) for row in rows]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [c for c in settings["contracts"] if c["type"] == "layers"]
    assert shown == [set(re.split(r" [:|] ", layer)) for layer in contract["layers"]]
