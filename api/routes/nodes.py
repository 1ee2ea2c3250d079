"""Nodes: list, cordon, drain, uncordon, forget."""

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from api.access import Ctx, Operator, Viewer
from api.answers import Answer
from api.auth.roles import Principal
from api.context import Context
from api.jobs.selection import attempts_page
from api.problems import not_found
from api.routing import StrictRoute
from api.schemas.admin import NodeReasonIn, WorkersIn
from api.schemas.answers import NodeOut, NodesOut
from api.schemas.fields import NodeName
from api.schemas.job_answers import NodeAttemptsOut
from scheduler.control.facts.requests import NodeAction
from scheduler.control.state.node_evidence import without_jobs
from scheduler.store.queries import MAX_LIMIT, AttemptQuery
from scheduler.views.types import NodeView

router = APIRouter(prefix="/v1", tags=["nodes"], route_class=StrictRoute)

Named = Annotated[NodeName, Path(description="node")]


@router.get(
    "/nodes",
    summary="List nodes",
    operation_id="list_nodes",
    responses={200: {"model": NodesOut}},
)
async def list_nodes(context: Ctx, principal: Viewer) -> Answer:
    """Return every node with its workers; jobs of foreign projects are left out."""
    return Answer({"nodes": visible_nodes(context, principal, context.service.nodes())})


@router.get(
    "/nodes/{name}",
    summary="Show a node",
    operation_id="get_node",
    responses={200: {"model": NodeOut}},
)
async def get_node(name: Named, context: Ctx, principal: Viewer) -> Answer:
    """Return a node with its workers."""
    return Answer(visible_nodes(context, principal, [find_node(context, name)])[0])


@router.get(
    "/nodes/{name}/attempts",
    summary="List leases on a node",
    operation_id="list_node_attempts",
    responses={200: {"model": NodeAttemptsOut}},
)
async def list_node_attempts(
    name: Named,
    context: Ctx,
    principal: Viewer,
    before: Annotated[int | None, Query(ge=1, le=2**62, description="only ids below it")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="most items of one page")] = 100,
) -> Answer:
    """Return the newest leases that had workers of a node, newest first.

    The node may be gone. Leases of jobs of foreign projects are left out.
    """
    query = AttemptQuery(nodes=(name,), before_id=before, limit=limit)
    return Answer(await attempts_page(context, principal, query))


@router.post(
    "/nodes/{name}/{action}",
    summary="Cordon, drain or uncordon a node",
    operation_id="act_on_node",
    responses={200: {"model": NodeOut}},
)
async def act_on_node(
    name: Named,
    action: Annotated[NodeAction, Path(description="what to do")],
    context: Ctx,
    principal: Operator,
    given: NodeReasonIn | None = None,
) -> Answer:
    """Cordon (nothing new starts), drain (what runs leaves with notice) or uncordon a node."""
    reason = given.reason if given else ""
    return Answer(
        await context.service.node_action(name, action, reason=reason, actor=principal.subject)
    )


@router.put(
    "/nodes/{name}/workers",
    summary="Approve a node's workers",
    operation_id="approve_workers",
    responses={200: {"model": NodeOut}},
)
async def approve_workers(
    name: Named, given: WorkersIn, context: Ctx, principal: Operator
) -> Answer:
    """Set the workers that a node may have; workers that it reports beyond them are refused.

    What changes is taken over with its next report, which ends the leases on it: drain it first.
    """
    find_node(context, name)
    await context.service.approve_workers(name, given.workers, actor=principal.subject)
    return Answer(visible_nodes(context, principal, [find_node(context, name)])[0])


@router.delete(
    "/nodes/{name}",
    summary="Forget a node",
    operation_id="remove_node",
    status_code=204,
    response_class=Response,
)
async def remove_node(name: Named, context: Ctx, principal: Operator) -> Response:
    """Forget a node that is lost; 409 while it reports or leases are on it."""
    await context.service.remove_node(name, actor=principal.subject)
    return Response(status_code=204)


def find_node(context: Context, name: str) -> NodeView:
    """Return a node.

    Raises:
        ProblemError: there is none of that name.
    """
    found = [node for node in context.service.nodes() if node.name == name]
    if not found:
        raise not_found("node", name)
    return found[0]


def visible_nodes(
    context: Context, principal: Principal, nodes: list[NodeView] | tuple[NodeView, ...]
) -> list[NodeView]:
    """Return nodes as far as the caller may see them: without the jobs of foreign projects."""
    if not principal.projects:
        return list(nodes)
    leases = context.service.leases()
    own = {lease.job_id for lease in leases if principal.sees(lease.project)}
    foreign = sorted({lease.job_id for lease in leases} - own, key=len, reverse=True)

    def said(text: str) -> str:
        """Remove foreign jobs from an agent's text."""
        text = without_jobs(text)
        for job_id in foreign if text else ():
            text = text.replace(job_id, "another job")
        return text

    return [
        dataclasses.replace(
            node,
            reason=said(node.reason),
            workers=tuple(
                dataclasses.replace(
                    w, jobs=tuple(j for j in w.jobs if j in own), problem=said(w.problem)
                )
                for w in node.workers
            ),
        )
        for node in nodes
    ]
