"""Who may do what: roles, and the principal that a request is made by."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Role(enum.StrEnum):
    """What a token allows, each of the first four including those above it."""

    VIEWER = "viewer"  #: read
    USER = "user"  #: submit jobs and act on those of its projects
    OPERATOR = "operator"  #: jobs, nodes, policy, projects, throughputs
    ADMIN = "admin"  #: tokens and enrolments besides
    AGENT = "agent"  #: a node's agent: the agents' routes and nothing else
    METRICS = "metrics"  #: a collector of figures: /metrics and health, and nothing else


_RANK = {role: rank for rank, role in enumerate(Role)} | {Role.AGENT: -1, Role.METRICS: -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """By whom a request is made.

    Attributes:
        subject: name; the actor of what the request changes.
        role: what it may do.
        projects: projects that it is confined to; empty for all.
        token_id: of its token; empty without one.
        expires_s: when its token ends, seconds since the Unix epoch, or None.
        node: the node, where the token is an agent's; empty otherwise.
        foreign: whether the token is an identity provider's.
    """

    subject: str
    role: Role
    projects: frozenset[str] = frozenset()
    token_id: str = ""
    expires_s: float | None = None
    node: str = ""
    foreign: bool = False

    def has(self, role: Role) -> bool:
        """Tell whether this role includes another one of the four for people."""
        return _RANK[self.role] >= _RANK[role]

    def sees(self, project: str) -> bool:
        """Tell whether jobs of a project exist for it."""
        return not self.projects or project in self.projects

    def knows_values_of(self, owner: str) -> bool:
        """Tell whether it is shown the values of the variables of somebody's job."""
        return self.subject == owner or self.role is Role.ADMIN


@dataclass(frozen=True, slots=True)
class TokenFault:
    """Why a token of an identity provider is refused.

    Attributes:
        why: in words.
        away: whether it may be taken later, since the provider cannot be asked now.
    """

    why: str
    away: bool = False


#: Everybody, where tokens are not asked for.
ANONYMOUS = Principal(subject="anonymous", role=Role.ADMIN)
