"""The API for training scripts (standard library only), the client and the service's settings.

The client uses httpx. ``read_service`` is for replays and needs the extra ``simulator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.adaptive import AdaptiveBatches, BatchLimits
    from leasehold.batches import GlobalBatches
    from leasehold.checkpoints import ForeignCheckpointsError, StaleLeaseError
    from leasehold.client import AsyncClient, Client, ClientError
    from leasehold.config.replays import read_service
    from leasehold.iterator import LEFT_EARLY, LeaseIterator
    from leasehold.naming import AmbiguousNameError
    from leasehold.plan import Plan

__all__ = [
    "LEFT_EARLY",
    "AdaptiveBatches",
    "AmbiguousNameError",
    "AsyncClient",
    "BatchLimits",
    "Client",
    "ClientError",
    "ForeignCheckpointsError",
    "GlobalBatches",
    "LeaseIterator",
    "Plan",
    "StaleLeaseError",
    "read_service",
]
__version__ = "0.2.0"
_HOMES = {
    "AdaptiveBatches": "adaptive",
    "BatchLimits": "adaptive",
    "GlobalBatches": "batches",
    "ForeignCheckpointsError": "checkpoints",
    "StaleLeaseError": "checkpoints",
    "AmbiguousNameError": "naming",
    "Plan": "plan",
    "AsyncClient": "client",
    "Client": "client",
    "ClientError": "client",
    "read_service": "config.replays",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use, since the command line starts here and needs none."""
    import importlib  # noqa: PLC0415 - as above

    if name not in __all__:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    if name == "read_service":
        _check_simulator()
    module = _HOMES.get(name, "iterator")
    return getattr(importlib.import_module(f"leasehold.{module}"), name)


def _check_simulator() -> None:
    """Raise an error that names the missing extra for replays, or a file that hides a package."""
    try:
        import simulator  # noqa: F401, PLC0415 - which names the extra
    except ModuleNotFoundError as error:
        if error.name != "simulator":
            raise
        raise ModuleNotFoundError(
            "the simulator needs more than is installed here (there is no module 'simulator'); "
            "get it by: pip install 'leasehold-scheduler[simulator]'",
            name="simulator",
        ) from None
    from leasehold.cli.guard import check_packages  # noqa: PLC0415  a script may be an ``api.py``

    check_packages()
