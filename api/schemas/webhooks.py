"""Webhooks, as they are asked for and answered."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from api.patterns import WEB_ADDRESS
from api.schemas.fields import Flag, Form, Name, ProjectName
from api.schemas.values import form_of
from scheduler.views.history_kinds import EventKind
from scheduler.webhooks.messages import Template
from scheduler.webhooks.webhooks import Webhook, WebhookState


def _underscored(kind: object) -> object:
    return kind.replace(".", "_") if isinstance(kind, str) else kind


#: ``job.failed`` is another way to write ``job_failed``.
Kind = Annotated[EventKind, BeforeValidator(_underscored)]


class WebhookIn(Form):
    """A webhook to make."""

    name: Name = Field(
        description="by which it is listed, tested and deleted; unique in its project"
    )
    url: Annotated[str, Field(min_length=8, max_length=2000, pattern=WEB_ADDRESS)] = Field(
        description="the address that it sends to, https://host/path; stored encrypted "
        "and never shown"
    )
    on: Annotated[list[Kind], Field(min_length=1, max_length=50)] = Field(
        description="kinds of events; dots may stand for underscores"
    )
    project: ProjectName | None = Field(
        None, description="only events of its jobs and itself; null for all events"
    )
    template: Template = Field(
        Template.JSON, description="json, or slack for Slack's incoming webhooks"
    )


class WebhookResumeIn(Form):
    """How a webhook goes on."""

    skip: Flag = Field(False, description="skip events until now")


@form_of(Webhook, only=("name", "on", "project", "template", "place", "created_s", "actor"))
@form_of(WebhookState)
class WebhookOut(BaseModel):
    """A webhook, without its secrets."""

    state: str = Field(description="ok, failing or paused")


class WebhooksOut(BaseModel):
    """Webhooks by name."""

    webhooks: list[WebhookOut]


class NewWebhookOut(WebhookOut):
    """A new webhook with the secret of its signatures, which is shown this once."""

    secret: str


class WebhookTestOut(BaseModel):
    """What became of a test message."""

    delivered: bool
    status: int | None
    problem: str
