"""Roles, and the principal of a request."""

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
    """The caller of a request.

    Attributes:
        subject: the name; it stands as actor in the history of the request's changes.
        role: its permissions.
        projects: projects that it is confined to; empty for all.
        token_id: the id of its token; empty without a token.
        expires_s: when its token ends, seconds since the Unix epoch; None if it does not end.
        node: the node if the token is an agent's; empty otherwise.
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
        """Return whether this role includes another one of the four for people."""
        return _RANK[self.role] >= _RANK[role]

    def sees(self, project: str) -> bool:
        """Return whether it may see jobs of a project."""
        return not self.projects or project in self.projects

    def knows_values_of(self, owner: str) -> bool:
        """Return whether it may see the variables' values of an owner's job."""
        return self.subject == owner or self.role is Role.ADMIN


@dataclass(frozen=True, slots=True)
class TokenFault:
    """Why a token of an identity provider is refused.

    Attributes:
        why: in words.
        away: whether a retry may succeed, since the provider is unreachable now.
    """

    why: str
    away: bool = False


#: Every caller, if tokens are not required.
ANONYMOUS = Principal(subject="anonymous", role=Role.ADMIN)
