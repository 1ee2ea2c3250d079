"""Projects: shares and quotas."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path

from api.access import Ctx, Operator, Viewer
from api.answers import Answer
from api.context import Context
from api.routing import StrictRoute
from api.schemas.admin import ProjectIn
from api.schemas.answers import ProjectOut, ProjectsOut
from api.schemas.fields import ProjectName
from scheduler.control.facts.requests import ProjectLimits

router = APIRouter(prefix="/v1", tags=["projects"], route_class=StrictRoute)

#: Rules for the fields of a project's jobs, and quotas and budgets unknown to earlier releases.
_RULES: Final = (
    *("entities", "job_types", "max_job_weight"),
    *("max_workers_of", "max_workers_per_user", "max_workers_per_user_of", "idle_quota"),
    *("budget_gpu_hours", "budget_usd", "budget_warning"),
)


@router.get(
    "/projects",
    summary="List projects",
    operation_id="list_projects",
    responses={200: {"model": ProjectsOut}},
)
async def list_projects(context: Ctx, principal: Viewer) -> Answer:
    """Return the projects that have limits or active jobs, as far as the token sees them."""
    found = context.service.projects()
    return Answer({"projects": [p for p in found if principal.sees(p.limits.project)]})


@router.put(
    "/projects/{name}",
    summary="Set a project's limits",
    operation_id="set_project",
    responses={200: {"model": ProjectOut}},
)
async def set_project(
    name: Annotated[ProjectName, Path(description="project")],
    given: ProjectIn,
    context: Ctx,
    principal: Operator,
) -> Answer:
    """Set a project's share and quotas; fields that are left out take their defaults.

    If limits on its jobs' fields, budgets, or quotas of worker types and of users are left out,
    they stay as set, since clients of earlier releases know nothing of them.
    """
    limits = ProjectLimits(
        project=name,
        weight=given.weight,
        inner_policy=given.inner_policy,
        max_workers=given.max_workers,
        max_jobs=given.max_jobs,
        **_rules(context, name, given),
    )
    return Answer(await context.service.set_project(limits, actor=principal.subject))


def _rules(context: Context, name: str, given: ProjectIn) -> dict[str, Any]:
    """Return the rules that may be left out: as given, else as they were."""
    known = (p.limits for p in context.service.projects() if p.limits.project == name)
    before = next(known, ProjectLimits(project=name))
    found = {
        rule: getattr(given if rule in given.model_fields_set else before, rule) for rule in _RULES
    }
    return {rule: tuple(v) if isinstance(v, list) else v for rule, v in found.items()}
