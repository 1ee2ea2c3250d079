"""Remarks on names that are allowed, and probably misspelt."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from leasehold.cli.display.output import print_remark
from scheduler.errors import LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leasehold.cli.session.client import ServiceClient


def remark_on_projects(service: ServiceClient, named: Iterable[str]) -> None:
    """Say which project may be meant by each that has no limits and no active jobs."""
    _remark(
        list(named),
        lambda: [p["limits"]["project"] for p in service.projects()],
        "no project '{}' has limits or active jobs",
    )


def remark_on_worker_types(service: ServiceClient, named: Iterable[str]) -> None:
    """Say which worker type may be meant by each that no node has."""
    _remark(
        list(named),
        lambda: list(service.cluster()["workers"]),
        "no node has workers of type '{}'",
    )


def _remark(given: list[str], ask: Callable[[], list[str]], said: str) -> None:
    try:
        known = ask() if given else []
    except LeaseholdError:  # the command itself says more
        return
    for name in given:
        near = get_close_matches(name, known, n=1)
        if name not in known and near:
            print_remark(f"{said.format(name)}; did you mean '{near[0]}'?")
