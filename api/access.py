"""Access checks of routes."""

from typing import Annotated

from fastapi import Depends, Request

from api.auth.roles import Principal, Role
from api.context import Context, context_of
from api.edge.layers import principal_of
from api.problems import ProblemError


class Access:
    """A dependency that lets a role in.

    Args:
        role: the least role; None for any role, including agents', except ``metrics``.
        everywhere: whether to refuse a token that is confined to projects, since the route changes
            shared state.
    """

    def __init__(self, role: Role | None, *, everywhere: bool = False) -> None:
        self.role = role
        self.everywhere = everywhere

    async def __call__(self, request: Request) -> Principal:
        """Return the caller of the request.

        Raises:
            ProblemError: there is no token, or its role or projects do not suffice.
        """
        principal = principal_of(request.state)
        if self.role is not None and not principal.has(self.role):
            raise ProblemError(
                403,
                f"this needs role {self.role}, and the token of '{principal.subject}' has "
                f"{principal.role}; use another token",
            )
        if self.role is None and principal.role is Role.METRICS:
            raise ProblemError(
                403,
                f"the token of '{principal.subject}' has role {Role.METRICS}, which reads "
                "/metrics, /healthz and /readyz and nothing else; use another token",
            )
        if self.everywhere and principal.projects:
            names = ", ".join(sorted(principal.projects))
            raise ProblemError(
                403,
                f"this concerns all projects, and the token of '{principal.subject}' is confined "
                f"to {names}; use another token",
            )
        return principal


async def _context(request: Request) -> Context:
    return context_of(request)


Anybody = Annotated[Principal, Depends(Access(None))]
Viewer = Annotated[Principal, Depends(Access(Role.VIEWER))]
User = Annotated[Principal, Depends(Access(Role.USER))]
Operator = Annotated[Principal, Depends(Access(Role.OPERATOR, everywhere=True))]
Admin = Annotated[Principal, Depends(Access(Role.ADMIN, everywhere=True))]
Ctx = Annotated[Context, Depends(_context)]
