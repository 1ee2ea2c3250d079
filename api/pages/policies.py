"""The view of policies: the one in force, the others, and a change with a trial before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import RedirectResponse

from api.auth.roles import Role
from api.context import context_of
from api.pages.copying import as_command, as_curl, options
from api.pages.rendering import render
from api.pages.routing import action, page, parse, problem_of_form
from api.problems import ProblemError
from api.routes.policies import details_of, known_policies, set_policy
from api.schemas.admin import PolicyIn
from scheduler.errors import LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from api.problems import PublicError
    from scheduler.views.types import PolicyTrial

#: Jobs of a trial that the page itself shows.
ROWS: Final = 100
#: Before the name of a parameter in a form.
_PARAMETER: Final = "parameter."
_FLAGS: Final = ("agnostic", "space_sharing")


async def show_policies(request: Request, principal: Principal) -> Response:  # noqa: ARG001 - of a view
    """Show the policy in force, and the others."""
    return render(
        request,
        "policies.html",
        view="Policies",
        policy=context_of(request).service.policy(),
        # A part of an open page does not have the list.
        policies=[] if "hx-request" in request.headers else await known_policies(),
        command=as_command("policy"),
        curl=as_curl("policy", {}),
    )


async def show_runs(request: Request, principal: Principal) -> Response:  # noqa: ARG001 - of a view
    """Show the view that plays runs of the simulator; the browser reads their files."""
    return render(
        request,
        "runs_compared.html",
        view="Policies",
        follows=False,
        command=as_command(
            *("compare", "bundled", "--throughputs", "bundled", "--cluster", "bundled"),
            *("--policies", "fifo,max_min_fairness", "--out", "comparison"),
        ),
    )


async def show_policy(request: Request, principal: Principal) -> Response:
    """Show a policy: its program, its parameters, and a form that puts it in force."""
    in_force = context_of(request).service.policy()
    name = request.path_params["name"]
    form: dict[str, str] = {}
    if in_force.name == name:
        form = {f"{_PARAMETER}{key}": value for key, value in in_force.parameters.items()}
        form |= {flag: "on" for flag in _FLAGS if getattr(in_force, flag)}
    return await _show(request, principal, form)


async def change(request: Request, principal: Principal, form: dict[str, str]) -> Response:
    """Try a policy, or put it in force."""
    try:
        given = parse(PolicyIn, _asked(request, form))
        if form.get("do") != "set":
            trial = await context_of(request).service.try_policy(given.choice())
            return await _show(request, principal, form, trial=trial)
        await set_policy(given, context_of(request), principal)
    except (LeaseholdError, ProblemError) as error:
        return await _show(request, principal, form, problem=problem_of_form(error))
    return RedirectResponse("../policies", 303)


def _asked(request: Request, form: Mapping[str, str]) -> dict[str, Any]:
    parameters = {
        name.removeprefix(_PARAMETER): value.strip()
        for name, value in form.items()
        if name.startswith(_PARAMETER) and value.strip()
    }
    flags = {flag: True for flag in _FLAGS if form.get(flag)}
    return {"name": request.path_params["name"], "parameters": parameters} | flags


async def _show(
    request: Request,
    principal: Principal,
    form: Mapping[str, str],
    *,
    trial: PolicyTrial | None = None,
    problem: PublicError | None = None,
) -> Response:
    found = await details_of(request.path_params["name"])
    asked = _asked(request, form)
    words = options({"param": [f"{key}={value}" for key, value in asked["parameters"].items()]})
    words += [f"--{flag.replace('_', '-')}" for flag in _FLAGS if asked.get(flag)]
    return render(
        request,
        "policy.html",
        status=200 if problem is None else problem.status,
        view="Policies",
        policy=found,
        in_force=context_of(request).service.policy(),
        form=form,
        parameter=_PARAMETER,
        may_change=principal.has(Role.OPERATOR) and not principal.projects,
        trial=trial,
        changes=trial.changes[:ROWS] if trial else (),
        more=max(len(trial.changes) - ROWS, 0) if trial else 0,
        problem=problem.document() if problem else None,
        command=as_command("policy", "set", asked["name"], *words, "--dry-run"),
    )


ROUTES: Final = (
    page("/policies", show_policies),
    page("/policies/-/compare", show_runs),
    page("/policies/{name}", show_policy),
    action("/policies/{name}", change, role=Role.OPERATOR, everywhere=True),
)
