"""The view of the cluster: workers by type, and each node with the jobs that hold its workers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from api.auth.roles import Role
from api.context import context_of
from api.pages.copying import as_command, as_curl
from api.pages.queries import write_query
from api.pages.rendering import render
from api.pages.routing import action, page, parse, read_reason, read_word
from api.routes.nodes import act_on_node, find_node, visible_nodes
from api.schemas.admin import NodeReasonIn
from scheduler.control.facts.requests import NodeAction

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from scheduler.views.types import NodeView

#: Nodes of one page.
NODES: Final = 50
#: State of a node -> actions that change it.
_ACTIONS: Final = {
    "ready": (NodeAction.CORDON, NodeAction.DRAIN),
    "cordoned": (NodeAction.UNCORDON, NodeAction.DRAIN),
    "draining": (NodeAction.UNCORDON,),
    "drained": (NodeAction.UNCORDON,),
    "silent": (NodeAction.CORDON, NodeAction.DRAIN),
    "lost": (NodeAction.CORDON,),
    "unknown": (NodeAction.CORDON, NodeAction.DRAIN),
}
#: Action -> its effect, in words.
_EFFECTS: Final = {
    NodeAction.CORDON: "Nothing new starts there. What runs goes on.",
    NodeAction.DRAIN: "Nothing new starts there. What runs saves its work and leaves.",
    NodeAction.UNCORDON: "Jobs may start there again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Workers of one node in one state.

    Attributes:
        worker_type: their type.
        state: ``busy``, ``free`` or ``out`` of service.
        jobs: ids of the jobs that hold them, as far as the reader may see them.
        count: how many they are.
        problem: why they may not be granted, if they may not.
    """

    worker_type: str
    state: str
    jobs: tuple[str, ...]
    count: int
    problem: str = ""


def held_workers(node: NodeView, leased: frozenset[int]) -> list[Held]:
    """Return the workers of a node, those of one job together.

    Args:
        node: the node.
        leased: the indices of all workers under leases.
    """
    found: Counter[tuple[str, str, tuple[str, ...], str]] = Counter()
    for worker in node.workers:
        state = "busy" if worker.index in leased else "free" if worker.in_service else "out"
        found[worker.worker_type, state, worker.jobs, worker.problem] += 1
    return [
        Held(worker_type=kind, state=state, jobs=jobs, count=count, problem=problem)
        for (kind, state, jobs, problem), count in found.items()
    ]


async def show_cluster(request: Request, principal: Principal) -> Response:
    """Show the cluster."""
    context, query = context_of(request), request.query_params
    cluster, leases = context.service.cluster(), context.service.leases()
    leased = frozenset(worker for lease in leases for worker in lease.workers)
    found = context.service.nodes()
    states = Counter(node.state for node in found)
    state, name, after = query.get("state", ""), query.get("q", "").strip(), query.get("after", "")
    chosen = [
        node
        for node in found
        if (not state or node.state == state) and name in node.name and node.name > after
    ]
    shown = visible_nodes(context, principal, chosen[:NODES])
    kept = {"state": state, "q": name}
    return render(
        request,
        "cluster.html",
        view="Cluster",
        cluster=cluster,
        nodes=[(node, held_workers(node, leased)) for node in shown],
        states=sorted(states.items()),
        state=state,
        name=name,
        next=write_query(kept | {"after": shown[-1].name}) if len(chosen) > NODES else None,
        first=write_query(kept) if after else None,
        url_of_state=lambda one: write_query(kept | {"state": one}),
        actions=_ACTIONS if principal.has(Role.OPERATOR) and not principal.projects else {},
        total=sum(len(node.workers) for node in found),
        command=as_command("nodes"),
        curl=as_curl("nodes", {}),
    )


async def ask(request: Request, principal: Principal) -> Response:  # noqa: ARG001 - of a view
    """Say what an action would do, and ask for a reason."""
    name, word = request.path_params["name"], _action(request)
    find_node(context_of(request), name)
    return render(
        request,
        "confirm.html",
        view="Cluster",
        verb=word.value,
        what=f"node {name}",
        effect=_EFFECTS[word],
        back="../../cluster",
    )


async def act(request: Request, principal: Principal, form: dict[str, str]) -> Response:
    """Cordon, drain or uncordon a node, and show the cluster."""
    name, given = request.path_params["name"], parse(NodeReasonIn, read_reason(form))
    await act_on_node(name, _action(request), context_of(request), principal, given)
    return RedirectResponse("../../cluster", 303)


def _action(request: Request) -> NodeAction:
    return read_word(NodeAction, "action", request.path_params["action"])


ROUTES: Final = (
    page("/cluster", show_cluster),
    page("/cluster/{name}/{action}", ask, role=Role.OPERATOR, everywhere=True),
    action("/cluster/{name}/{action}", act, role=Role.OPERATOR, everywhere=True),
)
