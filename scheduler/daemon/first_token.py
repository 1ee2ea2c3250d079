"""The first token: without one nobody could make the others."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from api.auth import hash_secret, new_secret
from api.roles import Role
from scheduler.daemon.agent import write_secret
from scheduler.store.rows import HistoryRow, TokenRow

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.store.protocol import Store

_SUBJECT = "admin"


def ensure_admin_token(store: Store, path: Path, *, now_s: float) -> bool:
    """Make an administrator's token where the store knows of no token at all.

    The secret is written to a file that only its owner may read, before the store learns of it: a
    crash in between leaves a file that the next start replaces.

    Returns:
        Whether a token was made.
    """
    if store.tokens():
        return False
    secret = new_secret()
    write_secret(path, secret)
    row = TokenRow(
        token_id=f"admin-{secrets.token_hex(4)}",
        secret_hash=hash_secret(secret),
        subject=_SUBJECT,
        role=Role.ADMIN,
        created_s=now_s,
    )
    store.add_token(row)
    line = HistoryRow(
        at_s=now_s,
        kind="token_created",
        subject_kind="token",
        subject=row.token_id,
        data={"subject": _SUBJECT, "role": str(Role.ADMIN), "first": True},
    )
    store.append_history((line,))
    return True
