"""Start-up guard: detect hidden or overwritten packages, and mixed versions.

The folders at the top of the project are its import packages, and their names are common words. If
another package called ``policies`` is found first, or has been installed over this one, the program
would fail later and far from the cause.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import sys
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.distributions import SCHEDULER, SDK, scheduler_folder
from scheduler.errors import MixedVersionsError, ShadowedPackageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Top-level packages; the distribution of the scheduler has all but the first.
PACKAGES = ("leasehold", "scheduler", "policies", "planner", "simulator", "traces", "agent", "api")


def check_packages(search_path: Sequence[str] | None = None) -> None:
    """Check that each package name leads to the project's own files, all of one version.

    Args:
        search_path: folders that imports search, in order; ``sys.path`` by default.

    Raises:
        ShadowedPackageError: another distribution, or a folder on the search path, hides a package
            or was installed over it.
        MixedVersionsError: our two distributions are of different versions.
    """
    path = list(sys.path if search_path is None else search_path)
    ours = _folders()
    for name, folder in ours.items():
        found = _origin(name, path)
        if found is not None and found != folder / "__init__.py":
            raise ShadowedPackageError(_hidden(name, found, folder, path))
    installed = _installed()
    for name in _overwritten(ours, installed):
        owner = _owner(ours[name] / "__init__.py", path)
        if owner is not None:
            raise ShadowedPackageError(_installed_over(name, ours[name], owner))
    _check_versions(installed)


def _folders() -> Mapping[str, Path]:
    """Return the folders of the packages that are installed, by name."""
    first, *others = PACKAGES
    folders = {first: Path(__file__).resolve().parents[1]}
    root = scheduler_folder()
    return folders if root is None else folders | {name: root / name for name in others}


def _check_versions(installed: Mapping[str, Distribution]) -> None:
    versions = {name: found.version for name, found in installed.items()}
    if len(set(versions.values())) > 1:
        shown = " and ".join(f"{name} {version}" for name, version in versions.items())
        raise MixedVersionsError(
            f"{shown} are installed, which must be of one version; install them together: "
            f"pip install --upgrade {SDK} {SCHEDULER}"
        )


def _installed() -> Mapping[str, Distribution]:
    """Return the project's installed distributions by name; a checkout may have none."""
    found = {}
    for name in (SDK, SCHEDULER):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = distribution(name)
    return found


def _origin(name: str, path: list[str]) -> Path | None:
    """Return the file that ``import name`` would load, without loading it."""
    spec = PathFinder.find_spec(name, path)
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    # A folder without __init__.py is not a package of the project.
    return Path(next(iter(spec.submodule_search_locations or [name]))).resolve() / "__init__.py"


def _overwritten(ours: Mapping[str, Path], installed: Mapping[str, Distribution]) -> Iterator[str]:
    """Yield the packages with an ``__init__.py`` that differs from the wheel's."""
    wanted = {f"{name}/__init__.py": name for name in ours}
    records = ((found.read_text("RECORD") or "").splitlines() for found in installed.values())
    # An editable install records no such files, and nothing can be installed over them.
    for file, digest, _size in (row for row in csv.reader(chain(*records)) if len(row) == 3):
        if file in wanted and digest and digest != _digest(ours[wanted[file]] / "__init__.py"):
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
        if candidate.metadata["Name"].lower() in {SDK, SCHEDULER}:
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


def _hidden(name: str, found: Path, folder: Path, path: list[str]) -> str:
    owner = _owner(found, path)
    shown = found.parent if found.name == "__init__.py" else found
    if owner is None:
        return (
            f"{shown} hides Leasehold's package '{name}' ({folder}). Rename it, start from "
            "another folder, or take its folder out of PYTHONPATH."
        )
    return (
        f"{_label(owner)} hides Leasehold's package '{name}': {shown} is found before "
        f"{folder}. {_advice(owner)}"
    )


def _installed_over(name: str, folder: Path, owner: Distribution) -> str:
    return (
        f"{_label(owner)} was installed over Leasehold's package '{name}' ({folder}). "
        f"{_advice(owner)} Then reinstall Leasehold: pip install --force-reinstall --no-deps "
        f"{SDK if name == PACKAGES[0] else SCHEDULER}"
    )


def _advice(owner: Distribution) -> str:
    return (
        f"Uninstall it (pip uninstall {owner.metadata['Name']}) or give Leasehold a virtual "
        "environment of its own."
    )
