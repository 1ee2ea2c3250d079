"""Rows that the store keeps besides decisions: tokens, enrolments, and the leadership."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A bearer token. Its secret is never stored, only a hash.

    Attributes:
        token_id: public name for lists and for revoking it.
        secret_hash: hexadecimal hash of the secret; unique.
        subject: the user or agent that it stands for.
        role: viewer, user, operator, admin, agent or metrics.
        projects: projects that it is confined to; empty for all.
        created_s: when it was created.
        expires_s: when it ends; None if it does not end.
        revoked_s: when it was revoked; None if it was not.
        last_used_s: when it was last used; None if it was not.
        replaces: id of the token that it renewed; ``enrolment`` if an enrolment gave it.
        replaced_s: when its own successor was first used; None if it has none.
    """

    token_id: str
    secret_hash: str
    subject: str
    role: str
    projects: tuple[str, ...] = ()
    created_s: float
    expires_s: float | None = None
    revoked_s: float | None = None
    last_used_s: float | None = None
    replaces: str = ""
    replaced_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentRow:
    """A one-time secret with which an agent obtains its token.

    Attributes:
        secret_hash: hexadecimal hash of the secret; unique.
        node: the only node that may use it; empty for any.
        created_s: when it was created.
        expires_s: until when it can be used.
        used_s: when it was used, or None.
        used_by: the node that used it.
        workers: worker type -> how many the node may have; None for those of its first report.
    """

    secret_hash: str
    node: str = ""
    created_s: float
    expires_s: float
    used_s: float | None = None
    used_by: str = ""
    workers: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The leadership.

    Attributes:
        holder: the process's unique name.
        address: the address to which other processes send writes; may be empty.
        token: fencing token; grows with every change of leader.
        expires_s: when another process may take over.
    """

    holder: str
    address: str = ""
    token: int
    expires_s: float
