"""Releases that this one is upgraded from, made from the git history."""

from __future__ import annotations

import io
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

#: The release before, 0.1.0.
BEFORE = "1e85bf4"
#: The oldest state of 0.1.0 that an upgrade is tested from.
OLDEST = "9d5e9d5"


def chart_of_release(root: Path, folder: Path, commit: str) -> Path:
    """Return a release's chart, in a folder; skips the test if there is no history.

    Args:
        root: of the checkout.
        folder: the folder to put it in.
        commit: of the release.
    """
    return _sources(root, folder, commit, "helm/leasehold") / "helm" / "leasehold"


def release(root: Path, folder: Path, commit: str) -> Path:
    """Return a release's sources, in a folder; skips the test if there is no history.

    Args:
        root: of the checkout.
        folder: the folder to put them in.
        commit: of the release.
    """
    return _sources(root, folder, commit)


def _sources(root: Path, folder: Path, commit: str, *paths: str) -> Path:
    if not (root / ".git").exists():
        pytest.skip("no git history here to make the release from")
    git = ["git", "-C", str(root), "archive", commit, *paths]
    files = subprocess.run(git, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(folder, filter="data")
    return folder
