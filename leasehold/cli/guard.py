"""Start-up guard: say so when another distribution hides one of our packages.

The folders at the top of the project are its import packages, and their names are everyday words.
If something else called ``policies`` is found first, or has been installed over ours, the program
would fail later and far from the cause.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import sys
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.errors import ShadowedPackageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Our distribution's name.
DISTRIBUTION = "leasehold"
#: Our top-level packages.
PACKAGES = ("leasehold", "scheduler", "policies", "planner", "simulator", "traces", "agent", "api")


def check_packages(search_path: Sequence[str] | None = None) -> None:
    """Make sure that each of our package names leads to our own files.

    Args:
        search_path: where imports look, in order; ``sys.path`` by default.

    Raises:
        ShadowedPackageError: another distribution, or a folder on the search path, hides a package
            or was installed over it.
    """
    path = list(sys.path if search_path is None else search_path)
    root = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        found = _origin(name, path)
        if found is not None and found != root / name / "__init__.py":
            raise ShadowedPackageError(_hidden(name, found, root, path))
    for name in _overwritten(root):
        owner = _owner(root / name / "__init__.py", path)
        if owner is not None:
            raise ShadowedPackageError(_installed_over(name, root, owner))


def _origin(name: str, path: list[str]) -> Path | None:
    """Return the file that ``import name`` would load, without loading it."""
    spec = PathFinder.find_spec(name, path)
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    # A folder without __init__.py: not a package of ours, whoever it belongs to.
    return Path(next(iter(spec.submodule_search_locations or [name]))).resolve() / "__init__.py"


def _overwritten(root: Path) -> Iterator[str]:
    """Yield the packages whose ``__init__.py`` is not the one that our wheel brought."""
    try:
        record = distribution(DISTRIBUTION).read_text("RECORD") or ""
    except PackageNotFoundError:  # a source checkout that was never installed
        return
    wanted = {f"{name}/__init__.py": name for name in PACKAGES}
    # An editable install records no such files, and nothing can be installed over them.
    for file, digest, _size in (row for row in csv.reader(record.splitlines()) if len(row) == 3):
        if file in wanted and digest and digest != _digest(root / file):
            yield wanted[file]


def _digest(file: Path) -> str:
    """Return the file's hash as a wheel's RECORD writes it."""
    if not file.is_file():
        return "missing"
    raw = hashlib.sha256(file.read_bytes()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _owner(file: Path, path: list[str]) -> Distribution | None:
    """Return the distribution other than ours that says it installed the file."""
    for candidate in distributions(path=path):
        if candidate.metadata["Name"].lower() == DISTRIBUTION:
            continue
        # Only names that could match are resolved: a large environment lists 100,000 files.
        for entry in candidate.files or ():
            if (
                entry.name == file.name
                and Path(str(candidate.locate_file(entry))).resolve() == file
            ):
                return candidate
    return None


def _label(owner: Distribution) -> str:
    return f"the distribution '{owner.metadata['Name']}' {owner.version}"


def _hidden(name: str, found: Path, root: Path, path: list[str]) -> str:
    owner = _owner(found, path)
    shown = found.parent if found.name == "__init__.py" else found
    if owner is None:
        return (
            f"{shown} hides Leasehold's package '{name}' ({root / name}). Rename it, start from "
            "another folder, or take its folder out of PYTHONPATH."
        )
    return (
        f"{_label(owner)} hides Leasehold's package '{name}': {shown} is found before "
        f"{root / name}. {_advice(owner)}"
    )


def _installed_over(name: str, root: Path, owner: Distribution) -> str:
    return (
        f"{_label(owner)} was installed over Leasehold's package '{name}' ({root / name}). "
        f"{_advice(owner)} Then reinstall Leasehold: pip install --force-reinstall {DISTRIBUTION}"
    )


def _advice(owner: Distribution) -> str:
    return (
        f"Uninstall it (pip uninstall {owner.metadata['Name']}) or give Leasehold a virtual "
        "environment of its own."
    )
