"""The release before, made from the git history."""

from __future__ import annotations

import io
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

#: The first release.
RELEASE = "9d5e9d5"


def chart_of_release(root: Path, folder: Path) -> Path:
    """Return the first release's chart, in a folder; skips the test where there is no history.

    Args:
        root: of the checkout.
        folder: where it is put.
    """
    return _sources(root, folder, "helm/leasehold") / "helm" / "leasehold"


def release(root: Path, folder: Path) -> Path:
    """Return the first release's sources, in a folder; skips the test where there is no history.

    Args:
        root: of the checkout.
        folder: where they are put.
    """
    return _sources(root, folder)


def _sources(root: Path, folder: Path, *paths: str) -> Path:
    if not (root / ".git").exists():
        pytest.skip("no git history here to make the first release from")
    git = ["git", "-C", str(root), "archive", RELEASE, *paths]
    files = subprocess.run(git, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(folder, filter="data")
    return folder
