"""Act on all jobs that match the filters of the list: how many, a reason, the result."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api.auth.roles import Role
from api.context import context_of
from api.jobs.selection import ids_of
from api.pages.job import EFFECTS
from api.pages.jobs import Wanted, read_wanted
from api.pages.rendering import render
from api.pages.routing import action, page, parse, read_reason, read_word
from api.routes.jobs_act import acting, in_pieces
from api.schemas.jobs import ReasonIn
from scheduler.control.facts.requests import JobAction

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from scheduler.control.facts.requests import Acted

#: Jobs that stay as they are, of which the page names at most so many.
_MOST_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an action on the jobs that match, or of its dry run.

    Attributes:
        results: of each job.
        more: whether more jobs match than one action may change.
    """

    results: list[Acted]
    more: bool

    @property
    def changed(self) -> int:
        """How many jobs change."""
        return sum(one.changed for one in self.results)

    @property
    def mark(self) -> str:
        """A mark of the jobs that change, which says to which jobs a person has agreed."""
        changed = "\n".join(sorted(one.job_id for one in self.results if one.changed))
        return hashlib.sha256(changed.encode()).hexdigest()[:16]

    @property
    def refused(self) -> list[Acted]:
        """Jobs that stay as they are for a reason."""
        return [one for one in self.results if one.error][:_MOST_NAMED]


async def ask(request: Request, principal: Principal) -> Response:
    """Say how many jobs match and would change, and ask for a reason."""
    wanted = read_wanted(request.query_params)
    ids, more = await _matching(request, principal, wanted)
    outcome = await _act(request, principal, ids, more=more, dry_run=True)
    return _show(request, wanted, outcome)


async def act(request: Request, principal: Principal, form: dict[str, str]) -> Response:
    """Act on the jobs that match, and show the result; ask again if they have become others."""
    wanted = read_wanted(request.query_params)
    reason = parse(ReasonIn, read_reason(form)).reason
    ids, more = await _matching(request, principal, wanted)
    before = await _act(request, principal, ids, more=more, dry_run=True)
    if before.mark != form.get("mark") and before.changed:
        return _show(request, wanted, before, has_moved=True)
    done = await _act(request, principal, ids, more=more, reason=reason)
    return _show(request, wanted, done, is_done=True)


async def _matching(
    request: Request, principal: Principal, wanted: Wanted
) -> tuple[list[str], bool]:
    """Return the jobs that match, and whether there are more than one action may change."""
    where = wanted.where(principal)
    if where is None or wanted.notes:  # a filter that cannot be read must not select more jobs
        return [], False
    return await ids_of(context_of(request), where)


async def _act(
    request: Request,
    principal: Principal,
    ids: list[str],
    *,
    more: bool,
    reason: str = "",
    dry_run: bool = False,
) -> Outcome:
    context, word = context_of(request), _action(request)
    do = acting(context, principal, word, reason=reason, dry_run=dry_run)
    return Outcome(results=await in_pieces(ids, do), more=more)


def _show(
    request: Request,
    wanted: Wanted,
    outcome: Outcome,
    *,
    is_done: bool = False,
    has_moved: bool = False,
) -> Response:
    word = _action(request)
    return render(
        request,
        "many_jobs.html",
        view="Jobs",
        verb=word.value,
        effect=EFFECTS[word],
        wanted=wanted,
        outcome=outcome,
        is_done=is_done,
        has_moved=has_moved,
    )


def _action(request: Request) -> JobAction:
    return read_word(JobAction, "action", request.path_params["action"])


ROUTES: Final = (
    page("/jobs/-/{action}", ask, role=Role.USER),
    action("/jobs/-/{action}", act),
)
