"""The two distributions of the project, and the folders of their packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

#: Has the package ``leasehold``.
SDK: Final = "leasehold-sdk"
#: Has the other packages, and the extras.
SCHEDULER: Final = "leasehold-scheduler"
_HERE: Final = Path(__file__).resolve().parent
#: In a wheel: copies of the modules of ``scheduler`` that commands of a client import.
SHARED: Final = _HERE / "_shared"


def scheduler_folder() -> Path | None:
    """Return the folder of ``scheduler`` and the packages beside it; None without them."""
    if not SHARED.is_dir():  # a checkout
        return _HERE.parent
    try:
        return Path(str(distribution(SCHEDULER).locate_file(""))).resolve()
    except PackageNotFoundError:
        return None
