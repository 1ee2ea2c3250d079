"""Nodes: what there is, cordon, drain, uncordon, forget."""

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from api.access import Ctx, Operator, Viewer
from api.answers import Answer
from api.context import Context
from api.problems import not_found
from api.roles import Principal
from api.routing import StrictRoute
from api.schemas.admin import NodeReasonIn
from api.schemas.answers import NodeOut, NodesOut
from api.schemas.fields import NodeName
from scheduler.runtime.protocol import NodeAction, NodeView

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
    return Answer({"nodes": _shown(context, principal, context.service.nodes())})


@router.get(
    "/nodes/{name}",
    summary="Show a node",
    operation_id="get_node",
    responses={200: {"model": NodeOut}},
)
async def get_node(name: Named, context: Ctx, principal: Viewer) -> Answer:
    """Return a node with its workers."""
    found = [node for node in context.service.nodes() if node.name == name]
    if not found:
        raise not_found("node", name)
    return Answer(_shown(context, principal, found)[0])


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


@router.delete(
    "/nodes/{name}",
    summary="Forget a node",
    operation_id="remove_node",
    status_code=204,
    response_class=Response,
)
async def remove_node(name: Named, context: Ctx, principal: Operator) -> Response:
    """Forget a node that is lost or drained; 409 while it reports or leases are on it."""
    await context.service.remove_node(name, actor=principal.subject)
    return Response(status_code=204)


def _shown(
    context: Context, principal: Principal, nodes: list[NodeView] | tuple[NodeView, ...]
) -> list[NodeView]:
    if not principal.projects:
        return list(nodes)
    own = {lease.job_id for lease in context.service.leases() if principal.sees(lease.project)}
    return [
        dataclasses.replace(
            node,
            workers=tuple(
                dataclasses.replace(w, jobs=tuple(j for j in w.jobs if j in own))
                for w in node.workers
            ),
        )
        for node in nodes
    ]
