"""The name of no other project's distribution is given for ours: docs/adr/0028."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import leasehold
from leasehold.cli.guard import PACKAGES

ROOT = Path(__file__).resolve().parents[3]
SOURCES = Path(leasehold.__file__).resolve().parents[1]
#: `leasehold` as an argument of pip, and with an extra.
FOREIGN = re.compile(
    r"pip3? (?:install|download|wheel)[^\n`]*?(?<![\w./-])leasehold(?![\w./-])"
    r"|(?<![\w./-])leasehold\[\w"
)
SUFFIXES = {"", ".ipynb", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}


def texts():
    """Yield what people read, and what programs say: path and text."""
    roots = [ROOT / name for name in ("docs", "examples", "helm", "docker", "sdk", "benchmarks")]
    roots += [ROOT / ".github", ROOT / ".ci", *(SOURCES / name for name in PACKAGES)]
    files = [file for root in roots for file in sorted(root.rglob("*")) if file.is_file()]
    for file in [*files, *sorted(ROOT.glob("*.md")), ROOT / "Makefile", ROOT / "pyproject.toml"]:
        if file.suffix in SUFFIXES:
            yield file, file.read_text(encoding="utf-8")


def test_nothing_says_to_install_a_distribution_that_is_not_ours():
    read = list(texts())
    assert len(read) > 500
    assert [f"{file}: {found[0]}" for file, text in read for found in FOREIGN.finditer(text)] == []


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("pip install leasehold", True),
        ("pip install --upgrade 'leasehold'", True),
        ("get it by: pip install 'leasehold[scheduler]'", True),
        ("Beside `leasehold[simulator]`.", True),
        ("pip install leasehold-sdk", False),
        ("pip install 'leasehold-scheduler[scheduler]'", False),
        ("/opt/leasehold/bin/pip install leasehold_sdk-*.whl", False),
        ("`pip install ./sdk` brings the `leasehold` command", False),
        ("pip uninstall leasehold", False),
    ],
)
def test_what_the_search_finds(text, foreign):
    assert bool(FOREIGN.search(text)) is foreign


def test_examples_depend_on_our_distributions():
    projects = [*(ROOT / "examples").rglob("pyproject.toml")]
    assert projects
    for file in projects:
        for requirement in tomllib.loads(file.read_text())["project"]["dependencies"]:
            name = re.match(r"[\w.-]+", requirement)[0]
            assert name != "leasehold", file
