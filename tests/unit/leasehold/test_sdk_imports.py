"""What jobs import runs where nothing is installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import leasehold

ROOT = Path(__file__).parents[3]
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
    ours = str(Path(leasehold.__file__).resolve().parents[1])
    code = (
        f"import sys; sys.path.insert(0, {ours!r}); import importlib\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "from leasehold import LeaseIterator, StaleLeaseError\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(roots - sys.stdlib_module_names - {'leasehold', '__main__'}))\n"
    )
    # -S: nothing is loaded before.
    command = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
