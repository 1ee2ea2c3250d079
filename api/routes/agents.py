"""The agents' routes. A thousand agents call them constantly: plain routes, no models."""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

import orjson
from starlette.responses import Response
from starlette.routing import Route

from api.agent_tokens import ENROLMENT, VOUCHED_PREFIX, has_token, is_bound, renew_token
from api.answers import Answer
from api.auth.roles import Role
from api.auth.tokens import ENROLMENT_PREFIX, hash_secret, new_secret, new_token_id
from api.context import context_of
from api.edge.layers import principal_of, unauthenticated_error
from api.edge.privacy import why_not_private
from api.patterns import IN_WORDS, NAME
from api.problems import FieldProblem, ProblemError, invalid_request
from api.routing import check_query, read_json
from api.threads import in_thread
from scheduler.errors import InputError, NotLeadingError
from scheduler.protocol.bounds import MOST_COUNT
from scheduler.protocol.desired import to_dict
from scheduler.protocol.reading import Reader
from scheduler.protocol.reports import report_from_dict
from scheduler.store.rows import TokenRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from api.context import Context
    from scheduler.protocol.reports import NodeReport

T = TypeVar("T", int, float)

_log = logging.getLogger("leasehold.api")
#: Query parameters of ``desired``.
DESIRED_PARAMETERS = frozenset({"term", "revision", "wait_s"})
_NODE = re.compile(NAME)
_ADDRESS = re.compile(r"[A-Za-z0-9._:\[\]-]{0,253}")
_VERSION = re.compile(r"[A-Za-z0-9._+-]{0,64}")
_INSTANCE = re.compile(r"[A-Za-z0-9.+/-]{0,253}")
_NONCE = re.compile(r"[0-9a-f]{0,64}")
_LEASE = re.compile(r"[0-9]{1,15}")
#: Whether more of a stream may follow a piece.
_STREAM_STATE = re.compile(r"|open|end")


async def enrol(request: Request) -> Response:
    """Exchange a one-time secret, or a token that Kubernetes vouches for, for the node's token."""
    context, body = context_of(request), Reader.of(await agent_json(request))
    node, secret = _checked_node(body.text("node")), body.text("secret")
    now_s, health = context.now(), context.service.health()
    if not health.leading:  # only the leader records approvals, and a secret works once
        raise NotLeadingError(health.leader_address)
    anew = await has_token(context, node)
    address = request.client.host if request.client else ""
    foreign = context.node_of is not None and not secret.startswith(ENROLMENT_PREFIX)
    approved = await (_vouched_for if foreign else _enrolled)(context, node, secret)
    token = new_secret()
    made = TokenRow(
        token_id=(VOUCHED_PREFIX if foreign else "") + new_token_id(),
        secret_hash=hash_secret(token),
        subject=node,
        role=Role.AGENT.value,
        created_s=now_s,
        expires_s=now_s + context.settings.agent_token_s,
        replaces=ENROLMENT,
    )
    await in_thread(context.store.add_token, made)
    if foreign:
        await _revoke_older(context, made)
    await context.service.note(
        "agent_enrolled",
        "node",
        node,
        actor=node,
        data={
            "token_id": made.token_id,
            "workers": approved,
            "address": address,
            "anew": anew,  # the node has had a valid token
        },
    )
    if anew:
        _log.warning(
            "node %s was enrolled again from %s, while it had a valid token; if that is another "
            "machine, two agents are one node: revoke the token of the wrong one",
            node,
            address or "an unknown address",
        )
    return Answer({"token": token, "token_id": made.token_id})


async def _enrolled(context: Context, node: str, secret: str) -> Mapping[str, int] | None:
    """Use up an enrolment; return the workers that it approves, None if it names none.

    Raises:
        ProblemError: it does not belong to this node.
    """
    # A secret for any node cannot be used for a node that exists already.
    use, named = context.store.use_enrolment, await has_token(context, node)
    row = await in_thread(use, hash_secret(secret), node=node, now_s=context.now(), named=named)
    if row is None:
        taken = ", or names no node while this one has a token already" if named else ""
        raise ProblemError(
            403,
            f"the enrolment of node '{node}' is refused: the secret is unknown, used, expired or "
            f"another node's{taken}; make a new one",
        )
    if row.workers is not None:
        await context.service.approve_workers(node, row.workers, actor=node, by="enrolment")
    return row.workers


async def _vouched_for(context: Context, node: str, secret: str) -> Mapping[str, int] | None:
    """Check an outside secret; return the workers that its node may have, None for any.

    Raises:
        ProblemError: it does not belong to this node, or the authority is unreachable.
    """
    assert context.node_of is not None
    try:
        found: str | None = await context.node_of(secret)
        mine = found == node and context.approved_of is not None
        approved = await context.approved_of(node) if context.approved_of and mine else None
    except OSError as error:
        _log.warning("node %s cannot be enrolled: %s", node, error)
        raise ProblemError(
            503,
            f"the token of node '{node}' cannot be checked now; the scheduler's log says why",
            headers={"Retry-After": "2"},
        ) from error
    if found != node:
        raise ProblemError(
            403,
            f"the enrolment of node '{node}' is refused: the token is not one of an agent there",
        )
    if approved is not None:
        await context.service.approve_workers(node, approved, actor=node, by="label")
    return approved


async def _revoke_older(context: Context, made: TokenRow) -> None:
    """Revoke the tokens of earlier pods on the node: they end when the next one starts."""
    for row in await in_thread(context.store.tokens, made.subject):
        ours = row.token_id.startswith(VOUCHED_PREFIX)
        if ours and row.token_id != made.token_id and row.revoked_s is None:
            await in_thread(context.store.revoke_token, row.token_id, now_s=made.created_s)
    context.authenticator.forget()


async def renew(request: Request) -> Response:
    """Renew the node's token if it is time for that."""
    node, context = agent_node(request), context_of(request)
    check_query(request, frozenset())
    principal = principal_of(request.state)
    if principal.node != node or not principal.token_id:  # tokens are not required
        return Answer({"renew_in_s": None})
    return Answer(await renew_token(context, principal))


async def desired(request: Request) -> Response:
    """Return the node's desired set, at once if it is newer than what the agent has."""
    node, context = agent_node(request), context_of(request)
    check_query(request, DESIRED_PARAMETERS)
    term, revision = (_number(request, n, int, 0, MOST_COUNT) for n in ("term", "revision"))
    wait_s = _number(request, "wait_s", float, 0.0, 3600.0)
    work = context.service.desired(
        node,
        after=(term, revision),
        wait_s=min(wait_s, context.settings.max_wait_s),
        hindrance=why_not_private(request.scope),
        instance=_header(request, "x-leasehold-instance", _INSTANCE),
    )
    found = await context.unless_stopping(work, principal_of(request.state))
    if found is None and not context.stopping.is_set():
        raise unauthenticated_error()  # the token has expired while the agent waited
    if found is None:
        raise ProblemError(
            503, "this scheduler is going down; ask again", headers={"Retry-After": "1"}
        )
    return Answer(to_dict(found))


async def report(request: Request) -> Response:
    """Take a node's report in."""
    node, context = agent_node(request), context_of(request)
    check_query(request, frozenset())
    if context.settings.auth:
        context.buckets.take_report_of_node(node, len(await request.body()))
    found = await context.by_size(await request.body(), _report_of)
    if found.node != node:
        raise ProblemError(
            403, f"the report is node '{found.node[:253]}'s and the token is '{node}'s"
        )
    await context.service.report(
        found,
        address=_header(request, "x-leasehold-address", _ADDRESS),
        version=_header(request, "x-leasehold-agent", _VERSION),
        enrolled=is_bound(context, principal_of(request.state)),
    )
    return Response(status_code=204)


def _report_of(body: bytes) -> NodeReport:
    return report_from_dict(_json_of(body))


async def append_log(request: Request) -> Response:
    """Store output of a lease."""
    node, context = agent_node(request), context_of(request)
    check_query(request, frozenset({"offset"}))
    lease, stream = request.path_params["lease_id"], request.path_params["stream"]
    # Python reads no integers of thousands of digits.
    if stream not in {"out", "err"} or not _LEASE.fullmatch(lease):
        raise ProblemError(404, f"there is no stream '{stream[:20]}'; it is out or err")
    offset = _number(request, "offset", int, 0, MOST_COUNT)
    state = _header(request, "x-leasehold-stream", _STREAM_STATE)
    following = await context.service.append_log(
        node,
        int(lease),
        stream,
        offset=offset,
        data=await request.body(),
        end=state == "end" if state else None,  # agents of the previous release send nothing
        nonce=_header(request, "x-leasehold-nonce", _NONCE),
    )
    return Answer({"next_offset": following})


async def code(request: Request) -> Response:
    """Return the code that a lease of the node is started in."""
    node, context = agent_node(request), context_of(request)
    check_query(request, frozenset())
    lease = request.path_params["lease_id"]
    found = await in_thread(_code, context, node, int(lease)) if _LEASE.fullmatch(lease) else None
    if found is None:
        raise ProblemError(
            404, f"node '{node}' has no lease {lease[:20]} with uploaded code kept here"
        )
    return Response(found, media_type="application/octet-stream")


def _code(context: Context, node: str, lease_id: int) -> bytes | None:
    store = context.store
    attempt = store.attempt(lease_id)
    if attempt is None or attempt.ended_s is not None or node not in attempt.nodes:
        return None
    job = store.job(attempt.job_id)
    digest = "" if job is None else job.spec.get("upload", "")
    return store.upload(job.project, digest) if job is not None and digest else None


def routes() -> list[Route]:
    """Return the agents' routes."""
    return [
        Route("/v1/agent/enrol", enrol, methods=["POST"]),
        Route("/v1/agent/token", renew, methods=["POST"]),
        Route("/v1/agent/desired", desired, methods=["GET"]),
        Route("/v1/agent/code/{lease_id}", code, methods=["GET"]),
        Route("/v1/agent/report", report, methods=["POST"]),
        Route("/v1/agent/logs/{lease_id}/{stream}", append_log, methods=["PUT"]),
    ]


def agent_node(request: Request) -> str:
    """Return the node that asks.

    Raises:
        ProblemError: the token is not an agent's; or tokens are not required and no node is named.
    """
    principal = principal_of(request.state)
    if principal.node:
        return principal.node
    if context_of(request).settings.auth:
        raise ProblemError(
            403,
            f"this needs a token of role agent, and the token of '{principal.subject}' has "
            f"{principal.role}; enrol the node",
        )
    named = unquote(request.headers.get("x-leasehold-node", ""))
    if not named:
        raise unauthenticated_error()
    return _checked_node(named)


def _checked_node(name: str) -> str:
    if len(name) > 253 or not _NODE.fullmatch(name):
        problem = f"{IN_WORDS[NAME]}, at most 253 in all"
        raise invalid_request([FieldProblem(field="node", value=name, problem=problem)])
    return name


def _number(request: Request, name: str, kind: Callable[[str], T], least: T, most: T) -> T:
    text = request.query_params.get(name, "0")
    try:
        value = kind(text[:40])
    except ValueError:
        value = kind("-1")
    if not math.isfinite(value) or not least <= value <= most:
        problem = f"must be a number from {least} to {most}"
        raise invalid_request([FieldProblem(field=name, value=text, problem=problem)])
    return value


def _header(request: Request, name: str, allowed: re.Pattern[str]) -> str:
    text = request.headers.get(name, "")
    if not allowed.fullmatch(text):
        raise invalid_request(
            [FieldProblem(field=name, value=text, problem="has unsuitable characters")]
        )
    return text


async def agent_json(request: Request) -> object:
    """Return the body of an agent's request.

    Raises:
        InputError: it is not JSON.
    """
    return _json_of(await request.body())


def _json_of(body: bytes) -> object:
    try:
        return read_json(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the body is not JSON: {error}") from error
