"""Shell completion of names from the scheduler; no names if it is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import typer  # noqa: TC002 - typer reads the annotations

from leasehold.cli.session.client import ServiceClient
from leasehold.cli.session.remote import open_client
from leasehold.client.exchange import Patience
from scheduler.errors import LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

#: Longest wait after the Tab key.
_PATIENCE: Final = Patience(away_s=0.0, busy_s=0.0, timeout_s=0.7)
_MOST: Final = 100


def complete_job(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of jobs, newest first, with their names."""
    found = _ask(ctx, lambda client: client.job_page(limit=_MOST, sort="-submitted")["jobs"])
    return [
        (str(job["job_id"]), f"{job.get('name', '')} {job.get('status', '')}")
        for job in found
        if str(job["job_id"]).startswith(incomplete)
    ]


def complete_node(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of nodes with their states."""
    found = _ask(ctx, ServiceClient.nodes)
    return [
        (node["name"], str(node.get("state", "")))
        for node in found
        if node["name"].startswith(incomplete)
    ]


def complete_policy(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of policies with their summaries."""
    found = _ask(ctx, ServiceClient.policies)
    return [
        (policy["name"], str(policy.get("summary", "")))
        for policy in found
        if policy["name"].startswith(incomplete)
    ]


def complete_project(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of projects."""
    return [name for name in _projects(ctx) if name.startswith(incomplete)]


def _projects(ctx: typer.Context) -> Iterator[str]:
    for project in _ask(ctx, ServiceClient.projects):
        yield str(project["limits"]["project"])


def _ask(ctx: typer.Context, ask: Callable[[ServiceClient], list[T]]) -> list[T]:
    given = {name: ctx.params.get(name) for name in ("server", "token_file", "ca_file")}
    try:
        with open_client(**given, patience=_PATIENCE) as client:
            return list(ask(client))
    except (LeaseholdError, OSError, KeyError, TypeError, ValueError):
        return []
