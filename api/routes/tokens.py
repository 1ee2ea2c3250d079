"""Tokens and enrolments: made, listed, revoked."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from api.access import Admin, Anybody, Ctx, Viewer
from api.answers import Answer
from api.auth.codes import VALID_S
from api.auth.roles import Role
from api.auth.tokens import ENROLMENT_PREFIX, hash_secret, new_secret, new_token_id
from api.edge.layers import secret_of
from api.jobs.conversions import token_answer
from api.problems import ProblemError, not_found
from api.routing import StrictRoute
from api.schemas.admin import EnrolmentIn, TokenIn
from api.schemas.answers import EnrolmentOut, NewTokenOut, SignInCodeOut, TokensOut, WhoAmI
from api.schemas.fields import TokenId
from api.schemas.values import values_of
from api.threads import in_thread
from scheduler.store.rows import EnrolmentRow, TokenRow

#: A token that expires sooner does not count as one with which another can be made.
SOON_S: Final = 3600.0

router = APIRouter(prefix="/v1", tags=["tokens"], route_class=StrictRoute)


@router.get(
    "/whoami",
    summary="Show the token's owner and rights",
    operation_id="whoami",
    responses={200: {"model": WhoAmI}},
)
async def whoami(principal: Anybody) -> Answer:
    """Return subject, role and projects of the token that the request shows."""
    return Answer(values_of(WhoAmI, principal))


@router.post(
    "/sign-in-codes",
    summary="Make a one-time code for the page",
    operation_id="create_sign_in_code",
    status_code=201,
    responses={201: {"model": SignInCodeOut}},
)
async def create_sign_in_code(request: Request, context: Ctx, principal: Viewer) -> Answer:  # noqa: ARG001 - asks for a role
    """Make a code that begins a session in a browser with this token, once and within a minute."""
    if not context.settings.auth:
        return Answer({"path": "/", "valid_s": 0.0}, 201)
    code = context.codes.make(secret_of(request.headers))
    return Answer({"path": f"/sign-in?code={code}", "valid_s": VALID_S}, 201)


@router.get(
    "/tokens",
    summary="List tokens",
    operation_id="list_tokens",
    responses={200: {"model": TokensOut}},
)
async def list_tokens(context: Ctx, principal: Admin) -> Answer:  # noqa: ARG001 - asks for a role
    """Return every token, expired and revoked ones too; never a secret."""
    rows = await in_thread(context.store.tokens)
    return Answer({"tokens": [token_answer(row) for row in rows]})


@router.post(
    "/tokens",
    summary="Make a token",
    operation_id="create_token",
    status_code=201,
    responses={201: {"model": NewTokenOut}},
)
async def create_token(given: TokenIn, context: Ctx, principal: Admin) -> Answer:
    """Make a token. Its secret is in this answer and nowhere else: only a hash is kept."""
    secret, now_s = new_secret(), context.now()
    row = TokenRow(
        token_id=new_token_id(),
        secret_hash=hash_secret(secret),
        subject=given.subject,
        role=given.role.value,
        projects=tuple(sorted(set(given.projects))),
        created_s=now_s,
        expires_s=None if given.ttl_s is None else now_s + given.ttl_s,
    )
    await in_thread(context.store.add_token, row)
    data = {"subject": row.subject, "role": row.role, "projects": list(row.projects)}
    await context.service.note(
        "token_created", "token", row.token_id, actor=principal.subject, data=data
    )
    return Answer(token_answer(row) | {"token": secret}, 201)


@router.delete(
    "/tokens/{token_id}",
    summary="Revoke a token",
    operation_id="revoke_token",
    status_code=204,
    response_class=Response,
)
async def revoke_token(
    token_id: Annotated[TokenId, Path(description="token id")], context: Ctx, principal: Admin
) -> Response:
    """Revoke a token: at once in this process, within some seconds in others.

    The last token of an administrator is refused (409): nobody could make another one.
    """
    rows, now_s = await in_thread(context.store.tokens), context.now()
    if [row.token_id for row in rows if _administers(row, now_s)] == [token_id]:
        raise ProblemError(
            409,
            f"token '{token_id}' is the only one of an administrator; make another one first "
            "(`leasehold token create NAME --role admin`), then revoke this one with it",
        )
    if not await in_thread(context.store.revoke_token, token_id, now_s=context.now()):
        raise not_found("token", token_id)
    context.authenticator.forget()
    await context.service.note("token_revoked", "token", token_id, actor=principal.subject, data={})
    return Response(status_code=204)


def _administers(row: TokenRow, now_s: float) -> bool:
    """Return whether a token lets in an administrator of everything, for some time to come."""
    lasts = row.expires_s is None or row.expires_s > now_s + SOON_S
    return row.role == Role.ADMIN and not row.projects and row.revoked_s is None and lasts


@router.post(
    "/enrolments",
    summary="Make a one-time secret for an agent",
    operation_id="create_enrolment",
    status_code=201,
    responses={201: {"model": EnrolmentOut}},
)
async def create_enrolment(given: EnrolmentIn, context: Ctx, principal: Admin) -> Answer:
    """Make a secret that an agent exchanges for its own token, once.

    With `workers` the node may have no others. Without, it may have those that it reports first.
    """
    secret, now_s = new_secret(ENROLMENT_PREFIX), context.now()
    row = EnrolmentRow(
        secret_hash=hash_secret(secret),
        node=given.node or "",
        created_s=now_s,
        expires_s=now_s + given.ttl_s,
        workers=given.workers,
    )
    await in_thread(context.store.add_enrolment, row)
    await context.service.note(
        "enrolment_created",
        "enrolment",
        row.node,
        actor=principal.subject,
        data={"expires_s": row.expires_s, "workers": row.workers},
    )
    return Answer(values_of(EnrolmentOut, row) | {"secret": secret}, 201)
