"""Webhooks: made, listed, tested, resumed, deleted."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from api.access import Ctx, User, Viewer
from api.answers import Answer
from api.auth.roles import Principal, Role
from api.context import Context
from api.history import SECRET_KINDS
from api.problems import ProblemError, not_found
from api.routing import StrictRoute
from api.schemas.fields import Name, ProjectName
from api.schemas.values import values_of
from api.schemas.webhooks import (
    NewWebhookOut,
    WebhookIn,
    WebhookOut,
    WebhookResumeIn,
    WebhooksOut,
    WebhookTestOut,
)
from scheduler.webhooks.webhooks import Webhook, WebhookView

router = APIRouter(prefix="/v1", tags=["webhooks"], route_class=StrictRoute)

HookName = Annotated[Name, Path(description="name of the webhook")]
HookProject = Annotated[
    ProjectName | None, Query(description="of the webhook, if several projects have the name")
]


@router.get(
    "/webhooks",
    summary="List webhooks",
    operation_id="list_webhooks",
    responses={200: {"model": WebhooksOut}},
)
async def list_webhooks(context: Ctx, principal: Viewer) -> Answer:
    """Return the webhooks of the projects that the token sees, and whether they get through."""
    found = await context.service.webhooks.all()
    shown = [webhook_answer(view) for view in found if _sees(principal, view.webhook)]
    return Answer({"webhooks": shown})


@router.post(
    "/webhooks",
    summary="Register a webhook",
    operation_id="create_webhook",
    status_code=201,
    responses={201: {"model": NewWebhookOut}},
)
async def create_webhook(given: WebhookIn, context: Ctx, principal: User) -> Answer:
    """Register an address that receives events from now on.

    An operator may for everything; a user for a project that the token sees. The secret of the
    signatures is in this answer and nowhere else.
    """
    _check_project(principal, given.project)
    secret = [kind for kind in given.on if kind.value.startswith(SECRET_KINDS)]
    if secret and not principal.has(Role.ADMIN):
        raise ProblemError(
            403,
            f"on: {', '.join(secret)} is for administrators only, and '{principal.subject}' "
            f"has role {principal.role}; name other kinds",
        )
    view, made = await context.service.webhooks.add(
        given.name,
        given.url,
        on=tuple(dict.fromkeys(kind.value for kind in given.on)),
        project=given.project,
        template=given.template,
        actor=principal.subject,
        counted=not principal.has(Role.OPERATOR),
    )
    return Answer(webhook_answer(view) | {"secret": made}, 201)


@router.post(
    "/webhooks/{name}/test",
    summary="Send a test message",
    operation_id="test_webhook",
    responses={200: {"model": WebhookTestOut}},
)
async def send_test(
    name: HookName, context: Ctx, principal: User, project: HookProject = None
) -> Answer:
    """Send a message of type `webhook_test`, once, and return the result."""
    key = await _own(context, principal, name, project)
    posted = await context.service.webhooks.test(key, actor=principal.subject)
    return Answer(
        {"delivered": not posted.problem, "status": posted.status, "problem": posted.problem}
    )


@router.post(
    "/webhooks/{name}/resume",
    summary="Let a webhook send again",
    operation_id="resume_webhook",
    responses={200: {"model": WebhookOut}},
)
async def resume_webhook(
    name: HookName,
    given: WebhookResumeIn,
    context: Ctx,
    principal: User,
    project: HookProject = None,
) -> Answer:
    """Send again at once, from the first unsent event; with `skip` only events from now on."""
    key = await _own(context, principal, name, project)
    view = await context.service.webhooks.resume(key, actor=principal.subject, skip=given.skip)
    return Answer(webhook_answer(view))


@router.delete(
    "/webhooks/{name}",
    summary="Delete a webhook",
    operation_id="delete_webhook",
    status_code=204,
    response_class=Response,
)
async def delete_webhook(
    name: HookName, context: Ctx, principal: User, project: HookProject = None
) -> Response:
    """Delete a webhook; its unsent messages are dropped."""
    key = await _own(context, principal, name, project)
    await context.service.webhooks.delete(key, actor=principal.subject)
    return Response(status_code=204)


def webhook_answer(view: WebhookView) -> dict[str, Any]:
    """Return a webhook as it is shown: neither its address nor its secret."""
    shown = values_of(WebhookOut, view.webhook)
    return shown | {"state": view.state.word} | asdict(view.state)


def _sees(principal: Principal, webhook: Webhook) -> bool:
    if webhook.project is None:
        return not principal.projects
    return principal.sees(webhook.project)


def _check_project(principal: Principal, project: str | None) -> None:
    """Refuse a webhook for a project that the caller may not read, or for all projects.

    Raises:
        ProblemError: the caller may not read it.
    """
    if project is None and not principal.has(Role.OPERATOR):
        raise ProblemError(
            403,
            f"a webhook for all projects needs role {Role.OPERATOR}, and '{principal.subject}' has "
            f"{principal.role}; name a project",
        )
    if project is not None and not principal.sees(project):
        raise ProblemError(
            403, f"project '{project}' is not of '{principal.subject}'; name a project of theirs"
        )


async def _own(context: Context, principal: Principal, name: str, project: str | None) -> str:
    """Return the key of a webhook, and refuse an action on another person's.

    Args:
        context: of the request.
        principal: the caller.
        name: of the webhook.
        project: of the webhook; None for the one for all projects, or the only one that the caller
            sees.

    Raises:
        ProblemError: the caller has no such webhook or several, or it is another person's.
    """
    hooks = [view.webhook for view in await context.service.webhooks.all()]
    seen = [hook for hook in hooks if hook.name == name and _sees(principal, hook)]
    found = [hook for hook in seen if hook.project == project] or (seen if not project else [])
    if not found:
        raise not_found("webhook", name)
    if len(found) > 1:
        projects = ", ".join(sorted(str(hook.project) for hook in found))
        raise ProblemError(
            409, f"several webhooks are named '{name}', of projects {projects}; give the project"
        )
    (hook,) = found
    if hook.actor != principal.subject and not principal.has(Role.OPERATOR):
        raise ProblemError(
            403,
            f"webhook '{name}' is of '{hook.actor}'; they or an operator may do this",
        )
    return hook.key
