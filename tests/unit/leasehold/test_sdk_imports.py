"""Modules that jobs import need nothing installed; a client's commands need the SDK only."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import leasehold
from leasehold.cli.guard import PACKAGES
from leasehold.cli.main import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SOURCES = Path(leasehold.__file__).resolve().parents[1]
#: These are for programs that have the libraries of their names.
_WITH_LIBRARIES = {"leasehold.torch", "leasehold.huggingface"}


def modules_of_jobs() -> list[str]:
    """Return the modules that the contract about jobs names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (found,) = [c for c in contracts if c["name"].startswith("What jobs import")]
    return sorted(set(found["source_modules"]) - _WITH_LIBRARIES)


def test_what_jobs_import_loads_the_standard_library_only() -> None:
    modules = modules_of_jobs()
    assert "leasehold.iterator" in modules
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCES)!r}); import importlib\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "from leasehold import LeaseIterator, StaleLeaseError\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(roots - sys.stdlib_module_names - {'leasehold', '__main__'}))\n"
    )
    # -S: nothing is loaded before.
    command = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_commands_of_a_client_import_what_the_sdk_has_copies_of() -> None:
    seen = {"leasehold"}
    todo = ["leasehold.cli.main", *(c.module for c in COMMANDS.values() if not c.extras)]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += imported_by(file_of(name) or Path())
    files = {file_of(name) for name in seen if not name.startswith("leasehold")}
    project = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert files == {SOURCES / "scheduler" / name for name in wheel["hooks"]["custom"]["shared"]}


def file_of(module: str) -> Path | None:
    """Return the file of a module of ours, or None if it is another name."""
    path = SOURCES.joinpath(*module.split("."))
    files = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)


def imported_by(file: Path) -> Iterator[str]:
    """Yield the modules of ours that a file imports when it runs, and the packages around them."""
    todo: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        todo += ast.iter_child_nodes(node)
        names = [alias.name for alias in getattr(node, "names", ()) if isinstance(alias, ast.alias)]
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{name}" for name in names)]
        for name in names:
            parts = name.split(".")
            around = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
            yield from (one for one in around if parts[0] in PACKAGES and file_of(one))
