"""Remarks on names that are allowed, and look like a slip of the pen."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from leasehold.cli.display.output import print_remark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold.cli.session.client import ServiceClient


def remark_on_projects(service: ServiceClient, named: Iterable[str]) -> None:
    """Say which project may be meant by each that has no limits and no active jobs."""
    given = list(named)
    known = [p["limits"]["project"] for p in service.projects()] if given else []
    _remark(given, known, "no project '{}' has limits or active jobs")


def remark_on_worker_types(service: ServiceClient, named: Iterable[str]) -> None:
    """Say which worker type may be meant by each that no node has."""
    given = list(named)
    known = list(service.cluster()["workers"]) if given else []
    _remark(given, known, "no node has workers of type '{}'")


def _remark(given: list[str], known: list[str], said: str) -> None:
    for name in given:
        near = get_close_matches(name, known, n=1)
        if name not in known and near:
            print_remark(f"{said.format(name)}; did you mean '{near[0]}'?")
