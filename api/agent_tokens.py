"""Agents' tokens: nodes with a bound inventory, and renewal before expiry.

A renewed token stays valid until its successor is used, and for a grace period after that, since an
answer may be lost and requests may be in flight. An agent that uses it later has stolen it, or was
restored from a copy; operators get a report.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from api.auth.roles import Role
from api.auth.tokens import hash_secret, new_secret, new_token_id
from api.problems import ProblemError
from api.threads import in_thread
from scheduler.store.rows import TokenRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.auth.roles import Principal
    from api.context import Context

#: Prefix of ids of tokens for nodes that an outside authority vouched for.
VOUCHED_PREFIX: Final = "k8s-"
#: Prefix of ids of tokens that ``leasehold up`` gives to its agent.
UP_PREFIX: Final = "up-"
#: What the first token of a node has in place of the id of the token that it renewed. It ends like
#: its successors, while one that an operator made ends only if the operator said so.
ENROLMENT: Final = "enrolment"
#: Time for which a renewed token is remembered.
REMEMBERED_S: Final = 30 * 86400.0

#: Least time between two successors of one token, if the first is lost in transit.
LEAST_BETWEEN_S: Final = 60.0

_log = logging.getLogger("leasehold.api")


def is_bound(context: Context, principal: Principal) -> bool:
    """Return whether a node is bound to its first report, unless an operator approves more.

    It is not bound if callers may claim any node name, nor beside ``leasehold up``. A node that
    Kubernetes vouches for is bound only if labels say which workers it may have.
    """
    token_id = principal.token_id
    if not token_id or token_id.startswith(UP_PREFIX):
        return False
    return context.approved_of is not None or not token_id.startswith(VOUCHED_PREFIX)


async def has_token(context: Context, node: str) -> bool:
    """Return whether a node has a valid token."""
    return any(_is_good(row, context.now()) for row in await _tokens_of(context, node))


async def renew_token(context: Context, principal: Principal) -> dict[str, object]:
    """Activate the successor of a token, or make the next one if it is due.

    Returns:
        ``renew_in_s``, seconds until the next request or None for never; and ``token`` and
        ``token_id`` of a new one, which is active from its first such request on.

    Raises:
        ProblemError: the token was renewed before, and its successor is in use.
    """
    settings, now_s = context.settings, context.now()
    own = await _tokens_of(context, principal.node)
    row = next((row for row in own if row.token_id == principal.token_id), None)
    if row is None:  # tokens are not required
        return {"renew_in_s": None}
    if row.replaces and row.replaces != ENROLMENT:
        await _take_into_use(context, row, now_s=now_s)
    if row.replaced_s is not None:
        context.authenticator.note_reuse(row)
        raise ProblemError(
            403,
            f"this token of node '{row.subject}' was renewed before; another agent, or a thief, "
            "uses its successor. Revoke the node's tokens and enrol it again",
        )
    if row.expires_s is not None and not row.replaces:
        return {"renew_in_s": None}  # its end is set explicitly
    left_s = row.created_s + settings.agent_token_s / 2.0 - now_s
    if left_s > 0:
        return {"renew_in_s": left_s}
    return await _succeeded(context, row, own, now_s=now_s)


async def tell_reuses(context: Context) -> None:
    """Report tokens that were used after their renewal to operators."""
    for row in context.authenticator.reused():
        await _tell_reuse(context, row)


async def _tell_reuse(context: Context, row: TokenRow) -> None:
    _log.warning(
        "token %s of node %s was used after its renewal: it may be stolen; unless you know its "
        "holder, revoke the node's tokens and enrol it again",
        row.token_id,
        row.subject,
    )
    data = {"token_id": row.token_id, "renewed_s": row.replaced_s}
    await context.service.note("token_reused", "node", row.subject, actor=row.subject, data=data)


async def _tokens_of(context: Context, node: str) -> Sequence[TokenRow]:
    rows = await in_thread(context.store.tokens, node)
    return [row for row in rows if row.role == Role.AGENT.value]


def _is_good(row: TokenRow, now_s: float) -> bool:
    return row.revoked_s is None and (row.expires_s is None or row.expires_s > now_s)


async def _take_into_use(context: Context, row: TokenRow, *, now_s: float) -> None:
    end_s = now_s + context.settings.agent_token_grace_s
    replace = context.store.replace_token
    if not await in_thread(replace, row.replaces, now_s=now_s, expires_s=end_s):
        return
    await in_thread(context.store.forget_tokens, row.subject, before_s=now_s - REMEMBERED_S)
    context.authenticator.forget()
    data = {"token_id": row.token_id, "replaces": row.replaces}
    await context.service.note("token_renewed", "node", row.subject, actor=row.subject, data=data)


async def _succeeded(
    context: Context, row: TokenRow, own: Sequence[TokenRow], *, now_s: float
) -> dict[str, object]:
    """Make the next token; drop an earlier successor, which was lost in transit."""
    for lost in own:
        if lost.replaces == row.token_id:
            if now_s - lost.created_s < LEAST_BETWEEN_S:
                raise ProblemError(
                    429,
                    f"a new token of node '{row.subject}' was made just now; use it, or ask later",
                    headers={"Retry-After": str(round(LEAST_BETWEEN_S))},
                )
            await in_thread(context.store.drop_token, lost.token_id)
    secret = new_secret()
    made = TokenRow(
        token_id=new_token_id(row.token_id.partition("-")[0]),
        secret_hash=hash_secret(secret),
        subject=row.subject,
        role=row.role,
        created_s=now_s,
        expires_s=now_s + context.settings.agent_token_s,
        replaces=row.token_id,
    )
    await in_thread(context.store.add_token, made)
    context.authenticator.forget()
    return {"renew_in_s": 0.0, "token": secret, "token_id": made.token_id}
