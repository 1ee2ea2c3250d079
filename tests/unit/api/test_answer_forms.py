"""Forms of answers: they have the fields of the values that are written, and their descriptions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from api.answers import dump_json
from api.auth.roles import Principal, Role
from api.jobs.conversions import (
    attempt_answer,
    cause_answer,
    event_answer,
    explanation_answer,
    job_answer,
    token_answer,
)
from api.routes.webhooks import webhook_answer
from api.schemas import answers, job_answers
from api.schemas.values import form_of, values_of
from api.schemas.webhooks import WebhookOut
from leasehold_testing.client_forms import document
from leasehold_testing.stored import attempt_row, history_row, job_row
from scheduler.control.facts import requests
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.reservation import Reservation
from scheduler.store.rows import TokenRow
from scheduler.views import types
from scheduler.views.dues import Dues
from scheduler.webhooks.messages import Template
from scheduler.webhooks.webhooks import Webhook, WebhookState, WebhookView

SCHEMAS = document()["components"]["schemas"]
#: Forms of values that routes write as they are.
AS_THEY_ARE = {
    answers.WorkerOut: types.WorkerView,
    answers.NodeOut: types.NodeView,
    answers.LeaseOut: types.LeaseView,
    answers.PlannedLeaseOut: types.PlannedLeaseView,
    answers.PlannedRoundOut: types.PlanView,
    answers.AllocationOut: types.AllocationView,
    answers.ClusterOut: types.ClusterView,
    answers.RoundOut: types.RoundView,
    answers.PolicyOut: types.PolicyView,
    answers.ReservationRuleOut: Reservation,
    answers.ReservationOut: types.ReservedView,
    answers.ProjectLimitsOut: requests.ProjectLimits,
    answers.BudgetOut: types.BudgetView,
    answers.DuesOut: Dues,
    answers.ProjectOut: types.ProjectView,
    answers.ThroughputOut: types.ThroughputView,
    answers.PairOut: types.PairView,
    job_answers.FitConfigurationOut: requests.FitConfiguration,
    job_answers.ActedOut: requests.Acted,
    job_answers.QuotaInTheWayOut: types.QuotaInTheWay,
    job_answers.JobAheadOut: types.JobAhead,
}
#: Fields that the document does not promise, since earlier releases did not send them.
LATER = {"ProjectOut": {"dues"}, "FitConfigurationOut": {"locality", "plan", "workers"}}

ADA = Principal(subject="ada", role=Role.ADMIN)
ROW, LEASE = job_row(1), attempt_row(1, 1)
LIVE = types.LiveJob(
    status=JobStatus.RUNNING,
    reason=None,
    steps_done=2.0,
    lease_id=1,
    worker_type="v100",
    workers=1,
    nodes=("alpha",),
    lease_deadline_s=9.0,
)
CAUSE = Cause(fact=FactKind.REQUEST, subject="ada")
LINE = history_row("job-1", data={"cause": CAUSE.to_data(), "figure": 1})
LAUNCH = history_row("job-1", "lease_launched", data={"lease": 1, "node": "alpha"})
WHY = types.Explanation(
    job_id="job-1", status=JobStatus.RUNNING, reason=None, message="It runs.", granted=CAUSE
)
TOKEN = TokenRow(token_id="t", secret_hash="x", subject="ada", role="admin", created_s=1.0)
HOOK = Webhook(
    key="w",
    name="w",
    hook_id="h",
    on=("job_failed",),
    project=None,
    template=Template.JSON,
    place="https://example.org",
    sealed={"url": "x"},
    created_s=1.0,
    actor="ada",
)
#: Forms, and answers that are composed.
COMPOSED = [
    (job_answers.JobOut, job_answer(ROW, None)),
    (job_answers.JobOut, job_answer(ROW, LIVE, ran_s=1.0)),
    (job_answers.JobWithSpec, job_answer(ROW, LIVE, spec={})),
    (job_answers.AttemptOut, attempt_answer(LEASE)),
    (job_answers.LaunchOut, attempt_answer(LEASE, [LAUNCH])["launches"][0]),
    (job_answers.ExplanationOut, explanation_answer(WHY, ADA)),
    (answers.EventOut, event_answer(LINE, ADA)),
    (answers.CauseOut, cause_answer(CAUSE, ADA, own="")),
    (answers.TokenOut, token_answer(TOKEN)),
    (WebhookOut, webhook_answer(WebhookView(webhook=HOOK, state=WebhookState()))),
]


@pytest.mark.parametrize("form", AS_THEY_ARE, ids=lambda form: form.__name__)
def test_a_form_has_the_fields_of_its_value_and_all_are_described(form: type[BaseModel]) -> None:
    schema, names = SCHEMAS[form.__name__], {f.name for f in fields(AS_THEY_ARE[form])}
    assert schema["properties"].keys() == names
    assert set(schema["required"]) == names - LATER.get(form.__name__, set())
    assert schema["description"]
    for name, field in schema["properties"].items():
        assert field.get("description"), name


@pytest.mark.parametrize(("form", "answer"), COMPOSED, ids=lambda value: str(value)[:40])
def test_a_form_has_the_fields_of_an_answer_that_is_composed(
    form: type[BaseModel], answer: dict[str, Any]
) -> None:
    assert answer.keys() == SCHEMAS[form.__name__]["properties"].keys()
    form.model_validate(orjson.loads(dump_json(answer)))


def test_live_figures_of_a_job_replace_those_of_its_row() -> None:
    ended, live = job_answer(ROW, None), job_answer(ROW, LIVE)
    assert (ended["status"], ended["steps_done"], ended["lease_id"]) == ("waiting", 0.0, None)
    assert (live["status"], live["steps_done"], live["reason"]) == ("running", 2.0, "")
    assert (live["lease_deadline_s"], live["deadline_s"]) == (9.0, None)
    assert list(ended) == list(live)


def test_the_form_of_a_value_says_what_its_docstring_says() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Inner:
        """Part of a value.

        Attributes:
            size_s: in seconds; None if
                ``forever``.
        """

        size_s: float | None = None

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Outer:
        """A value.

        Attributes:
            parts: by name.
            secret: never shown.
            kind: a word.
        """

        parts: Mapping[str, tuple[Inner, ...]]  # noqa: F821 - known to forms
        secret: str
        kind: JobStatus

    @form_of(Inner)
    class InnerOut(BaseModel): ...

    del InnerOut  # fields with such a value have it

    @form_of(Outer, without=("secret",))
    class OuterOut(BaseModel):
        """What is shown."""

        kind: str
        more: int = 1

    schema = OuterOut.model_json_schema()
    assert schema["description"] == "What is shown."
    assert list(schema["properties"]) == ["parts", "kind", "more"]
    assert schema["required"] == ["parts", "kind"]
    parts, kind, more = schema["properties"].values()
    assert parts["additionalProperties"]["items"] == {"$ref": "#/$defs/InnerOut"}
    assert parts["description"] == "by name"
    assert (kind["type"], kind["description"]) == ("string", "a word")
    assert (more["default"], "description" in more) == (1, False)
    inner = schema["$defs"]["InnerOut"]
    assert inner["description"] == "Part of a value."
    assert inner["properties"]["size_s"]["description"] == "in seconds; null if `forever`"
    value = Outer(parts={}, secret="x", kind=JobStatus.HELD)
    assert values_of(OuterOut, value) == {"parts": {}, "kind": JobStatus.HELD}


@dataclass(frozen=True)
class Plain:
    """A value.

    Attributes:
        size: in bytes.
    """

    size: int
    bare: int = 0


class SizeOut(BaseModel):
    size: int


class Strict(BaseModel): ...


class StrictOut(Strict): ...


@pytest.mark.parametrize(
    ("source", "form", "options", "fault"),
    [
        (Plain, BaseModel, {"without": ("bare", "sise")}, "Plain has no 'sise'"),
        (Plain, BaseModel, {"only": ("size", "owner")}, "Plain has no 'owner'"),
        (Plain, SizeOut, {"without": ("size", "bare")}, "it leaves 'size' out, but has it"),
        (Plain, SizeOut, {}, "'bare' has no description"),
        (Plain, StrictOut, {"only": ("size",)}, "its base is not BaseModel"),
        (Reservation, SizeOut, {}, "Reservation has a form"),
    ],
)
def test_a_form_that_does_not_fit_its_value_is_refused(
    source: type[Any], form: type[BaseModel], options: dict[str, Any], fault: str
) -> None:
    made = type("Out", (form,), {}) if form is BaseModel else form
    with pytest.raises(TypeError, match=f"form {made.__name__}: {fault}$"):
        form_of(source, **options)(made)
