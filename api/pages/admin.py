"""The views for administration: projects, reservations, webhooks, tokens, and nodes to approve."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson
from pydantic import TypeAdapter, ValidationError
from starlette.responses import RedirectResponse

from api.auth.roles import Role
from api.context import context_of
from api.pages.model_forms import fields_of, read_values
from api.pages.rendering import render
from api.pages.routing import action, page, parse, problem_of_form
from api.problems import (
    FieldProblem,
    ProblemError,
    PublicError,
    field_problems,
    invalid_request,
    not_found,
)
from api.routes import nodes, projects, reservations, tokens, webhooks
from api.schemas.admin import EnrolmentIn, ProjectIn, ReservationIn, TokenIn, WorkersIn
from api.schemas.fields import Name, NodeName, ProjectName, TokenId
from api.schemas.webhooks import WebhookIn, WebhookResumeIn
from api.threads import in_thread
from scheduler.errors import LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from pydantic import BaseModel
    from starlette.requests import Request
    from starlette.responses import Response

    from api.answers import Answer
    from api.auth.roles import Principal
    from api.context import Context

    #: Does what a form says: the context, its caller, the body, the name in the path -> the answer.
    Make = Callable[[Context, Principal, Any, str], Awaitable[Answer]]

_PROJECT: Final = TypeAdapter(ProjectName)
_NODE: Final = TypeAdapter(NodeName)
_HOOK: Final = TypeAdapter(Name)
#: Forms that were sent and made a secret; a page that is loaded again sends its form again.
MOST_SENT: Final = 1000
_SENT: Final = PublicError(
    status=409, detail="this form was sent before, and made what it says; look at the list"
)
#: Rows of one table.
ROWS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminForm:
    """A form that makes or changes something.

    Attributes:
        title: above it.
        section: to which it leads back.
        model: the body of the route that it stands for.
        make: calls that route.
        role: the least role.
        everywhere: whether a token that is confined to projects is refused.
        button: the word on its button.
        shown_once: field of the answer with a secret; empty if there is none.
        hint: what to do with the secret.
        words: field -> words about it, in place of the body's own.
        note: what to know before it is sent.
        name: the form of the name in its path; None if there is none.
    """

    title: str
    section: str
    model: type[BaseModel]
    make: Make
    role: Role
    everywhere: bool = True
    button: str = "Make"
    shown_once: str = ""
    hint: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    name: TypeAdapter[Any] | None = None


FORMS: Final = {
    "tokens/new": AdminForm(
        title="New token",
        section="tokens",
        model=TokenIn,
        make=lambda context, principal, given, _: tokens.create_token(given, context, principal),
        role=Role.ADMIN,
        shown_once="token",
        hint="Give it to its owner over a private way. People sign in on the page with it, and put "
        "it into LEASEHOLD_TOKEN for the command line.",
        words={"ttl_s": "how long it is valid; empty: until it is revoked"},
    ),
    "nodes/new": AdminForm(
        title="Let a node join",
        section="nodes",
        model=EnrolmentIn,
        make=lambda context, principal, given, _: tokens.create_enrolment(
            given, context, principal
        ),
        role=Role.ADMIN,
        shown_once="secret",
        hint="Write it to a file that only the agent's user reads, and name that in: leasehold "
        "agent --enrol-file FILE. The agent exchanges it for a token of its own, once.",
        words={
            "ttl_s": "for how long it can be used",
            "node": "the only node that may use it; empty: any",
            "workers": "how many workers of each type the node may have; empty: those that it "
            "reports first",
        },
    ),
    "reservations/new": AdminForm(
        title="Reserve workers",
        section="reservations",
        model=ReservationIn,
        make=lambda context, principal, given, _: reservations.create_reservation(
            given, context, principal
        ),
        role=Role.OPERATOR,
        button="Reserve",
        words={"from_s": "when the window begins", "until_s": "when it ends"},
    ),
    "webhooks/new": AdminForm(
        title="New webhook",
        section="webhooks",
        model=WebhookIn,
        make=lambda context, principal, given, _: webhooks.create_webhook(
            given, context, principal
        ),
        role=Role.USER,
        everywhere=False,
        shown_once="secret",
        hint="Receivers check signatures with it.",
    ),
    "projects/{name}": AdminForm(
        title="Limits of project",
        section="projects",
        model=ProjectIn,
        make=lambda context, principal, given, name: projects.set_project(
            name, given, context, principal
        ),
        role=Role.OPERATOR,
        button="Set",
        name=_PROJECT,
        note="An empty field sets no limit; an empty weight is 1, an empty budget warning 0.8.",
    ),
    "nodes/{name}/workers": AdminForm(
        title="Workers of node",
        section="nodes",
        model=WorkersIn,
        make=lambda context, principal, given, name: nodes.approve_workers(
            name, given, context, principal
        ),
        role=Role.OPERATOR,
        button="Approve",
        name=_NODE,
        note="What changes ends the leases on it, with the agent's next report. Drain the node "
        "first.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAction:
    """An action on one thing, after a page that tells its effect.

    Attributes:
        section: to which it leads back.
        effect: its effect, in words.
        do: calls the route.
        role: the least role.
        everywhere: whether a token that is confined to projects is refused.
        noun: the kind of thing.
        result: says what came of it, from the answer; None if it shows in the list.
        name: the form of the name in its path.
        find: returns more words about the thing; raises if there is none.
    """

    section: str
    effect: str
    do: Callable[[Request, Context, Principal, str], Awaitable[Any]]
    role: Role
    everywhere: bool = True
    noun: str
    result: Callable[[Mapping[str, Any]], str] | None = None
    name: TypeAdapter[Any]
    find: Callable[[Context, str], Awaitable[str]] | None = None


async def _token(context: Context, name: str) -> str:
    for row in await in_thread(context.store.tokens):
        if row.token_id == name:
            scope = f", confined to {', '.join(row.projects)}" if row.projects else ""
            return f"It is of {row.subject}, with role {row.role}{scope}."
    raise not_found("token", name)


async def _reservation(context: Context, name: str) -> str:
    for one in context.service.reservations():
        if one.reservation.name == name:
            rule = one.reservation
            return f"It has {rule.workers} workers of type {rule.worker_type}."
    raise not_found("reservation", name)


async def _node(context: Context, name: str) -> str:
    return f"It is {nodes.find_node(context, name).state}."


ACTIONS: Final = {
    "tokens/{name}/revoke": AdminAction(
        section="tokens",
        noun="token",
        name=TypeAdapter(TokenId),
        find=_token,
        effect="Nobody can use it any more. Open pages of its sessions end within ten seconds.",
        do=lambda _, context, principal, name: tokens.revoke_token(name, context, principal),
        role=Role.ADMIN,
    ),
    "reservations/{name}/delete": AdminAction(
        section="reservations",
        noun="reservation",
        name=_PROJECT,
        find=_reservation,
        effect="All jobs may use its workers again.",
        do=lambda _, context, principal, name: reservations.delete_reservation(
            name, context, principal
        ),
        role=Role.OPERATOR,
    ),
    "webhooks/{name}/test": AdminAction(
        section="webhooks",
        noun="webhook",
        name=_HOOK,
        effect="It is sent one message of type webhook_test, now.",
        do=lambda request, context, principal, name: webhooks.send_test(
            name, context, principal, _project(request)
        ),
        result=lambda told: "It was delivered." if told["delivered"] else told["problem"],
        role=Role.USER,
        everywhere=False,
    ),
    "webhooks/{name}/resume": AdminAction(
        section="webhooks",
        noun="webhook",
        name=_HOOK,
        effect="It sends again at once, from the first event that was not sent.",
        do=lambda request, context, principal, name: webhooks.resume_webhook(
            name, WebhookResumeIn(skip=False), context, principal, _project(request)
        ),
        role=Role.USER,
        everywhere=False,
    ),
    "webhooks/{name}/skip": AdminAction(
        section="webhooks",
        noun="webhook",
        name=_HOOK,
        effect="It sends again at once. Events until now are not sent.",
        do=lambda request, context, principal, name: webhooks.resume_webhook(
            name, WebhookResumeIn(skip=True), context, principal, _project(request)
        ),
        role=Role.USER,
        everywhere=False,
    ),
    "webhooks/{name}/delete": AdminAction(
        section="webhooks",
        noun="webhook",
        name=_HOOK,
        effect="Messages that were not sent are dropped.",
        do=lambda request, context, principal, name: webhooks.delete_webhook(
            name, context, principal, _project(request)
        ),
        role=Role.USER,
        everywhere=False,
    ),
    "nodes/{name}/forget": AdminAction(
        section="nodes",
        noun="node",
        name=_NODE,
        find=_node,
        effect="The scheduler forgets it. It may join again.",
        do=lambda _, context, principal, name: nodes.remove_node(name, context, principal),
        role=Role.OPERATOR,
    ),
}


def _project(request: Request) -> str | None:
    """Return the project of a webhook, as the query names it."""
    text = request.query_params.get("project", "")
    return parse_name(text, _PROJECT, "project") if text else None


async def show_projects(request: Request, principal: Principal) -> Response:
    """Show projects with their limits."""
    found = context_of(request).service.projects()
    rows = [
        one
        for one in found
        if principal.sees(one.limits.project) and _wanted(request, one.limits.project)
    ]
    return _show(request, principal, "projects", rows)


async def show_reservations(request: Request, principal: Principal) -> Response:
    """Show reservations."""
    answer = await reservations.list_reservations(context_of(request), principal)
    rows = _read(answer)["reservations"]
    rows = [one for one in rows if _wanted(request, one["reservation"]["name"])]
    return _show(request, principal, "reservations", rows)


async def show_webhooks(request: Request, principal: Principal) -> Response:
    """Show webhooks, and whether they get through."""
    answer = await webhooks.list_webhooks(context_of(request), principal)
    rows = [one for one in _read(answer)["webhooks"] if _wanted(request, one["name"])]
    return _show(request, principal, "webhooks", rows)


async def show_tokens(request: Request, principal: Principal) -> Response:
    """Show tokens, without their secrets; those that can be used first, people's before agents'."""
    now_s = context_of(request).now()
    rows = list(await in_thread(context_of(request).store.tokens))
    ended = {row.token_id for row in rows if row.revoked_s or (row.expires_s or now_s) < now_s}
    rows = [row for row in rows if _wanted(request, row.subject, row.token_id, row.role)]
    machines = {Role.AGENT.value, Role.METRICS.value}
    rows.sort(key=lambda row: (row.token_id in ended, row.role in machines, -row.created_s))
    return _show(request, principal, "tokens", rows, ended=ended)


async def show_nodes(request: Request, principal: Principal) -> Response:
    """Show nodes with the workers that they may have, and those that they report beyond these."""
    found = nodes.visible_nodes(context_of(request), principal, context_of(request).service.nodes())
    found = [node for node in found if _wanted(request, node.name)]
    rows = sorted(found, key=lambda node: (not node.refused, node.state != "lost", node.name))
    return _show(request, principal, "nodes", rows)


def _wanted(request: Request, *texts: str) -> bool:
    text = request.query_params.get("q", "").strip()
    return not text or any(text in one for one in texts)


SECTIONS: Final = {
    "projects": (show_projects, Role.VIEWER),
    "reservations": (show_reservations, Role.VIEWER),
    "webhooks": (show_webhooks, Role.VIEWER),
    "nodes": (show_nodes, Role.VIEWER),
    "tokens": (show_tokens, Role.ADMIN),
}


def _show(
    request: Request,
    principal: Principal,
    section: str,
    rows: Any,
    *,
    ended: Collection[str] = (),
) -> Response:
    def may(role: Role, *, everywhere: bool = True) -> bool:
        return principal.has(role) and not (everywhere and principal.projects)

    return render(
        request,
        "admin.html",
        view="Admin",
        section=section,
        sections=[name for name, (_, role) in SECTIONS.items() if role is Role.VIEWER or may(role)],
        rows=rows[:ROWS],
        more=max(len(rows) - ROWS, 0),
        name=request.query_params.get("q", "").strip(),
        may_do=may,
        ended=ended,
    )


def form_page(path: str) -> Any:
    """Return the view of a form."""
    form = FORMS[path]

    async def show(request: Request, principal: Principal) -> Response:
        _check_name(request, form.name)
        values = await _present(request, principal, path)
        return _show_form(request, form, values)

    return show


async def _present(request: Request, principal: Principal, path: str) -> Mapping[str, Any]:
    """Return the values that a form shows at first."""
    context, name = context_of(request), request.path_params.get("name", "")
    if path == "projects/{name}":
        found = (one.limits for one in context.service.projects() if principal.sees(name))
        limits = next((one for one in found if one.project == name), None)
        return {} if limits is None else asdict(limits)
    if path == "nodes/{name}/workers":
        node = nodes.find_node(context, name)
        has = Counter(worker.worker_type for worker in node.workers)
        reported = Counter(has if node.approved is None else node.approved)
        reported.update(node.refused)
        return {"workers": dict(reported)}
    return {}


def form_action(path: str) -> Any:
    """Return what sending a form does."""
    form = FORMS[path]

    async def act(request: Request, principal: Principal, given: dict[str, str]) -> Response:
        context, name = context_of(request), request.path_params.get("name", "")
        _check_name(request, form.name)
        once = given.get("once", "")[:64] if form.shown_once else ""
        if once and _was_sent(context, once):
            return _show_form(request, form, given, problem=_SENT)
        try:
            values = read_values(form.model, given, now_s=context.now())
            answer = await form.make(context, principal, parse(form.model, values), name)
        except (LeaseholdError, ProblemError) as error:
            context.sent_forms.pop(once, None)
            return _show_form(request, form, given, problem=problem_of_form(error))
        if not form.shown_once:
            return RedirectResponse(f"{_up(request)}{form.section}", 303)
        made = _read(answer)
        return render(
            request,
            "admin_secret.html",
            view="Admin",
            title=form.title,
            section=form.section,
            up=_up(request),
            secret=made[form.shown_once],
            hint=form.hint,
        )

    return act


def _was_sent(context: Context, once: str) -> bool:
    """Note that a form which makes a secret is sent; return whether it was sent before."""
    if once in context.sent_forms:
        return True
    context.sent_forms[once] = None
    if len(context.sent_forms) > MOST_SENT:
        del context.sent_forms[next(iter(context.sent_forms))]
    return False


def _show_form(
    request: Request,
    form: AdminForm,
    values: Mapping[str, Any],
    *,
    problem: PublicError | None = None,
) -> Response:
    name = request.path_params.get("name", "")
    return render(
        request,
        "form.html",
        status=200 if problem is None else problem.status,
        view="Admin",
        title=f"{form.title} {name}".strip(),
        place=form.section.capitalize(),
        back=f"{_up(request)}{form.section}",
        button=form.button,
        fields=fields_of(form.model, values, words=form.words),
        note=form.note,
        once=secrets.token_hex(16),
        was={},
        problem=problem.document() if problem else None,
    )


def ask_page(path: str) -> Any:
    """Return the view that says what an action does."""
    one, verb = ACTIONS[path], path.rpartition("/")[2]

    async def ask(request: Request, principal: Principal) -> Response:  # noqa: ARG001 - of a view
        name = _check_name(request, one.name)
        found = "" if one.find is None else await one.find(context_of(request), name)
        return render(
            request,
            "confirm.html",
            view="Admin",
            verb=verb,
            what=f"{one.noun} {request.path_params['name']}",
            effect=f"{found} {one.effect}".strip(),
            takes_reason=False,
            back=f"{_up(request)}{one.section}",
        )

    return ask


def act_on(path: str) -> Any:
    """Return what an action does."""
    one = ACTIONS[path]

    async def act(request: Request, principal: Principal, form: dict[str, str]) -> Response:  # noqa: ARG001 - of an action
        name = _check_name(request, one.name)
        answer = await one.do(request, context_of(request), principal, name)
        if one.result is not None:
            text = one.result(_read(answer))
            title, back = f"Test of {one.noun} {name}", f"{_up(request)}{one.section}"
            return render(
                request, "admin_result.html", view="Admin", title=title, text=text, back=back
            )
        return RedirectResponse(f"{_up(request)}{one.section}", 303)

    return act


def _up(request: Request) -> str:
    """Return the relative URL of the folder of sections."""
    return "../" * (request.url.path.rstrip("/").count("/") - 2) or "./"


def _read(answer: Answer) -> Any:
    return orjson.loads(bytes(answer.body))


async def find_project(request: Request, principal: Principal) -> Response:  # noqa: ARG001 - of a view
    """Lead to the limits of a project, which need not exist yet."""
    name = parse_name(request.query_params.get("name", ""), _PROJECT, "name")
    return RedirectResponse(f"projects/{quote(name, safe='')}", 303)


def _check_name(request: Request, kind: TypeAdapter[Any] | None) -> str:
    """Return the name in the path, as the route of the REST interface would take it."""
    text = str(request.path_params.get("name", ""))
    return text if kind is None else parse_name(text, kind, "name")


def parse_name(text: str, kind: TypeAdapter[Any], field: str) -> str:
    """Return a name of a kind.

    Raises:
        ProblemError: it is none.
    """
    try:
        return str(kind.validate_python(text))
    except ValidationError as error:
        problem = field_problems(error.errors())[0].problem
        raise invalid_request([FieldProblem(field=field, value=text, problem=problem)]) from None


ROUTES: Final = (
    page("/admin", show_projects),
    page("/admin/set-project", find_project, role=Role.OPERATOR, everywhere=True),
    *(
        page(f"/admin/{name}", show, role=role, everywhere=role is not Role.VIEWER)
        for name, (show, role) in SECTIONS.items()
    ),
    *(
        page(f"/admin/{path}", form_page(path), role=one.role, everywhere=one.everywhere)
        for path, one in FORMS.items()
    ),
    *(
        action(f"/admin/{path}", form_action(path), role=one.role, everywhere=one.everywhere)
        for path, one in FORMS.items()
    ),
    *(
        page(f"/admin/{path}", ask_page(path), role=one.role, everywhere=one.everywhere)
        for path, one in ACTIONS.items()
    ),
    *(
        action(f"/admin/{path}", act_on(path), role=one.role, everywhere=one.everywhere)
        for path, one in ACTIONS.items()
    ),
)
