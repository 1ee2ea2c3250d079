"""``nodes``, ``cordon``, ``drain`` and ``uncordon``: the machines."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from leasehold.cli.display.output import print_json, print_shown, table
from leasehold.cli.reading.pairs import parse_workers
from leasehold.cli.session.completion import complete_node
from leasehold.cli.session.each import do_to_each
from leasehold.cli.session.remote import Json, remote
from scheduler.errors import InputError
from scheduler.views.times import format_ago

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.text import Text

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Node

Names: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="NODE...", help="Nodes.", autocompletion=complete_node)
]
#: Name for refused worker types that are too many to list.
OTHERS = "others"
Reason: TypeAlias = Annotated[
    str, typer.Option("--reason", "-r", help="Why, in words; shown beside the node.")
]


@remote
def nodes(
    service: ServiceClient,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            help="One node with its workers; all of them by default.",
            autocompletion=complete_node,
            show_default=False,
        ),
    ] = None,
    *,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget a node that is lost: stop its agent first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List nodes, or the workers of one."""
    if name is None:
        if forget:
            raise typer.BadParameter("name the node to forget")
        shown = service.nodes()
        if as_json:
            print_json({"nodes": shown})
        else:
            print_shown(nodes_table(shown, now_s=time.time()) if shown else "no nodes")
        return
    if forget:
        do_to_each([name], service.forget_node, done="forgotten", as_json=as_json)
        return
    node = service.node(name)
    if as_json:
        print_json(node)
        return
    print_shown(nodes_table([node], now_s=time.time()), "", _workers(node))


@remote
def cordon(
    service: ServiceClient, names: Names, *, reason: Reason = "", as_json: Json = False
) -> None:
    """Let nothing new start on nodes; what runs there goes on."""
    _act(service.cordon, names, reason, as_json=as_json)


@remote
def drain(
    service: ServiceClient, names: Names, *, reason: Reason = "", as_json: Json = False
) -> None:
    """Let nothing new start on nodes, and let what runs there leave with notice."""
    _act(service.drain, names, reason, as_json=as_json)


@remote
def uncordon(
    service: ServiceClient, names: Names, *, reason: Reason = "", as_json: Json = False
) -> None:
    """Put nodes back into service."""
    _act(service.uncordon, names, reason, as_json=as_json)


@remote
def approve(
    service: ServiceClient,
    name: Annotated[
        str, typer.Argument(metavar="NODE", help="The node.", autocompletion=complete_node)
    ],
    *,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            "--worker",
            metavar="TYPE:COUNT",
            help="Workers that it may have, such as v100:4, and no others; by "
            "default those that it reports now. Repeatable.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set the workers that a node may have; workers that it reports beyond them are refused.

    If that changes the workers in use, leases on the node end: drain it first.
    """
    workers = parse_workers(worker or [], option="--worker")
    if not workers:
        node = service.node(name)
        workers = dict(node["refused"])
        for kind, count in _counts(node).items():
            workers[kind] = workers.get(kind, 0) + count
        if OTHERS in node["refused"]:
            raise InputError(f"node '{name}' reports too many types; name them: --worker v100:4")
    node = service.approve_workers(name, workers)
    if as_json:
        print_json(node)
        return
    shown = " ".join(f"{kind}:{count}" for kind, count in sorted(workers.items()))
    typer.echo(f"{name} may have {shown or 'no workers'}")


def nodes_table(found: list[Node], *, now_s: float) -> Text:
    """Make a table with a row per node."""
    headings = ("node", "state", "workers", ">in service", ">busy", ">seen", "agent", "reason")
    return table(headings, [_row(node, now_s) for node in found], spare=("agent", "in service"))


def _act(do: Callable[..., Node], names: list[str], reason: str, *, as_json: bool) -> None:
    """Apply an action to each node; a failure does not stop the others.

    Raises:
        LeaseholdError: the only node failed, or no scheduler answers or permits it.
        typer.Exit: some nodes failed.
    """
    do_to_each(
        names,
        partial(do, reason=reason),
        done="nodes",
        as_json=as_json,
        shown=lambda node: f"{node['name']} {node['state']}",
    )


def _row(node: Node, now_s: float) -> tuple[Any, ...]:
    workers = node["workers"]
    return (
        node["name"],
        node["state"],
        " ".join(f"{kind}:{count}" for kind, count in _counts(node).items()),
        sum(worker["in_service"] for worker in workers),
        sum(bool(worker["jobs"]) for worker in workers),
        format_ago(node["last_seen_s"], now_s),
        node["version"],
        node["reason"],
    )


def _counts(node: Node) -> dict[str, int]:
    counts: dict[str, int] = {}
    for worker in node["workers"]:
        counts[worker["worker_type"]] = counts.get(worker["worker_type"], 0) + 1
    return counts


def _workers(node: Node) -> Text:
    rows = [
        (
            worker["local_index"],
            worker["index"],
            worker["worker_type"],
            worker["in_service"],
            worker.get("shareable", ""),  # a server of the previous release does not send it
            ", ".join(worker["jobs"]),
            worker["problem"],
        )
        for worker in node["workers"]
    ]
    headings = (">worker", ">number", "type", "in service", "shareable", "jobs", "problem")
    return table(headings, rows, spare=("shareable", "number"), wrapped=True)
