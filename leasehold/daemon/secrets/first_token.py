"""The first token, which is needed to create all others."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from api.auth.roles import Role
from api.auth.tokens import hash_secret, new_secret
from leasehold.config.secret_files import read_given_token
from leasehold.daemon.secrets.agent_token import write_secret
from scheduler.domain.rows import HistoryRow
from scheduler.errors import ConflictError
from scheduler.store.rows import TokenRow

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.store.protocol import Store

_SUBJECT = "admin"
_GIVEN: Final = "given-"


def ensure_admin_token(store: Store, path: Path, *, now_s: float) -> bool:
    """Make an administrator's token if the store has no token.

    The secret is written first to a file that only its owner may read, and then to the store. A
    crash in between leaves a file that the next start replaces.

    Returns:
        Whether a token was made.
    """
    if store.tokens():
        return False
    secret = new_secret()
    write_secret(path, secret)
    _add(store, f"admin-{secrets.token_hex(4)}", secret, now_s=now_s)
    return True


def ensure_given_token(store: Store, path: Path, *, now_s: float) -> bool:
    """Make the token in a file an administrator's, and revoke the one before it.

    Several processes may do so at once. A revoked token stays revoked.

    Returns:
        Whether the token is new.

    Raises:
        InputError: the file cannot be read, or the token in it is too short to be safe.
    """
    secret = read_given_token(path)
    digest = hash_secret(secret)
    new = store.token(digest) is None
    if new:
        try:
            _add(store, f"{_GIVEN}{digest[:12]}", secret, now_s=now_s)
        except ConflictError:  # another process was faster
            new = False
    for row in store.tokens():
        outdated = row.token_id.startswith(_GIVEN) and row.secret_hash != digest
        if outdated and row.revoked_s is None:
            store.revoke_token(row.token_id, now_s=now_s)
    return new


def _add(store: Store, token_id: str, secret: str, *, now_s: float) -> None:
    row = TokenRow(
        token_id=token_id,
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
