"""What the store keeps beside the decisions: tokens, enrolments, and who leads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A bearer token. Its secret is never stored, only a hash.

    Attributes:
        token_id: public name by which it is listed and revoked.
        secret_hash: hexadecimal hash of the secret; unique.
        subject: user or agent that it stands for.
        role: viewer, user, operator, admin, agent or metrics.
        projects: projects that it is confined to; empty for all.
        created_s: when it was made.
        expires_s: when it ends, or None.
        revoked_s: when it was revoked, or None.
        last_used_s: when it was last seen, or None.
        replaces: id of the token that it was made for when that was renewed; empty for none.
        replaced_s: when the token that was made for it was first shown, or None.
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
        created_s: when it was made.
        expires_s: until when it can be used.
        used_s: when it was used, or None.
        used_by: by which node.
        workers: worker type -> how many the node may have; None: those that it reports first.
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
    """Who leads.

    Attributes:
        holder: the process, by a name of its own.
        address: where the others send writes; may be empty.
        token: fencing token; grows with every change of leader.
        expires_s: when somebody else may take over.
    """

    holder: str
    address: str = ""
    token: int
    expires_s: float
