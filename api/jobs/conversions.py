"""From requests to the values of the domain, and from rows and views to answers."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from api.schemas.answers import CauseOut, TokenOut
from api.schemas.fields import Form
from api.schemas.job_answers import AttemptOut, JobOut
from api.schemas.jobs import KubernetesIn
from api.schemas.values import values_of
from scheduler.control.facts.requests import Submission
from scheduler.control.leases.retries import category_of
from scheduler.domain.facts.troubles import Trouble
from scheduler.domain.jobs.fields import Word
from scheduler.domain.jobs.job import JobStatus, counts_between
from scheduler.domain.jobs.spec import DEFAULT_PROJECT, JOB_FIELDS, JobSpec
from scheduler.domain.lease_life import EndReason
from scheduler.views.types import LiveJob

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from api.auth.roles import Principal
    from api.schemas.jobs import JobIn
    from scheduler.domain.facts.causes import Cause
    from scheduler.domain.jobs.fields import Asked
    from scheduler.domain.rows import AttemptRow, HistoryRow, JobRow
    from scheduler.store.rows import TokenRow
    from scheduler.views.types import Explanation

#: Replacement of a value that the reader may not see.
BLOT: Final = "***"
#: Variables with an array element's index and the array's size.
ARRAY_INDEX, ARRAY_COUNT = "LEASEHOLD_ARRAY_INDEX", "LEASEHOLD_ARRAY_COUNT"
#: Live fields of a job that holds no workers; those of its row replace some.
_NO_LEASE: Final = values_of(
    JobOut,
    LiveJob(
        status=JobStatus.COMPLETED,
        reason=None,
        steps_done=0.0,
        lease_id=None,
        worker_type="",
        workers=0,
        nodes=(),
        lease_deadline_s=None,
    ),
)


def project_of(job: JobIn, principal: Principal) -> str:
    """Return the project of a job that may name none: the default, or the token's only one."""
    return default_project(principal) if job.project is None else job.project


def default_project(principal: Principal) -> str:
    """Return the default project of a caller: the general default, or the token's only one."""
    only = tuple(principal.projects)
    return only[0] if len(only) == 1 else DEFAULT_PROJECT


#: Fields of a specification by the names that they have in a request.
_ASKED = {known.name: known for known in JOB_FIELDS}


def to_spec(job: JobIn, *, project: str, now_s: float) -> JobSpec:
    """Return the domain's value of a job that was checked.

    Args:
        job: as submitted; an array counts as one job here.
        project: the job's project.
        now_s: from when ``deadline_in_s`` counts.
    """
    given, values = vars(job), dict[str, Any]()
    for name in job.model_fields_set:  # omitted fields have the specification's defaults
        known = _ASKED.get(name)
        if known is not None:
            values[known.attribute] = _value(known, given[name])
    values["project"] = project
    if job.max_workers is not None:
        values["scale_factors"] = counts_between(job.min_workers or 1, job.max_workers)
    if job.deadline_in_s is not None:
        values["deadline_s"] = now_s + job.deadline_in_s
    return JobSpec(**values)


def _value(known: Asked, given: Any) -> Any:
    """Return a field of a request as a specification has it."""
    if given is None:  # omitted, without a default in a request
        return known.default
    kind = type(given)  # a thousand jobs have 30,000 of them
    if kind is str:
        return given
    if kind is list:
        return tuple(sorted(given) if known.kind is Word.WORKER_COUNTS else given)
    if kind is dict:
        return MappingProxyType(given.copy())
    if isinstance(given, Form):
        return MappingProxyType(given.model_dump(exclude_defaults=kind is KubernetesIn))
    return given


def expand_submissions(
    job: JobIn, spec: JobSpec, *, owner: str, client_id: str
) -> Iterator[Submission]:
    """Yield the submissions of a job: itself, or the elements of its array.

    Args:
        job: as submitted.
        spec: the domain's value of it.
        owner: the submitting user.
        client_id: the client's own name for it; empty for none.
    """
    if job.array is None:
        yield Submission(spec=spec, client_id=client_id, owner=owner, held=job.held)
        return
    for index in range(job.array.count):
        env = dict(spec.env) | {ARRAY_INDEX: str(index), ARRAY_COUNT: str(job.array.count)}
        own: dict[str, Any] = {
            "name": f"{spec.name}[{index}]",
            "env": MappingProxyType(env),
            "array_index": index,
            "job_type": spec.named_type,
        }
        yield Submission(
            spec=replace(spec, **own),
            client_id=f"{client_id}[{index}]" if client_id else "",
            owner=owner,
            held=job.held,
        )


def job_answer(
    row: JobRow,
    live: LiveJob | None,
    *,
    ran_s: float = 0.0,
    since_s: float | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a job's answer: its row, updated by its live state.

    Args:
        row: as stored.
        live: of a job that has not ended.
        ran_s: seconds for which it has held workers.
        since_s: the time of the newest known change of its status, if it neither runs nor has
            ended.
        spec: its specification as the reader may see it, if the answer has one.
    """
    stored = values_of(JobOut, row)
    answer = stored | _NO_LEASE | stored
    answer["ran_s"] = ran_s
    answer["since_s"] = since_s if row.finished_s is None else row.finished_s
    if row.spec.get("total_steps") is None and row.spec.get("duration_s") is None:
        answer["total_steps"] = None  # the stored value stands for an unnamed run time
    if live is not None:
        answer |= values_of(JobOut, live) | {"reason": live.reason or ""}
        if live.lease_start_s is not None:
            answer["since_s"] = live.lease_start_s
    if spec is not None:
        answer["spec"] = spec
    return answer


def attempt_answer(row: AttemptRow, launches: Sequence[HistoryRow] = ()) -> dict[str, Any]:
    """Return a lease of a job, without its fencing token.

    Args:
        row: as stored.
        launches: lines of history about how its pods were launched, one for each node.
    """
    answer = values_of(AttemptOut, row)
    names = ("node", "image_s", "launch_s", "ready_s")
    answer["launches"] = [
        {name: line.data.get(name) for name in names} | {"devices": line.data.get("devices", [])}
        for line in launches
    ]
    return answer


def event_answer(row: HistoryRow, principal: Principal) -> dict[str, Any]:
    """Return a line of history; its cause names no job that the caller may not see."""
    answer = {name: getattr(row, name) for name in row.__dataclass_fields__}
    own = row.subject if row.subject_kind == "job" else ""
    data = row.figures
    if row.kind == "lease_ended":
        data = {**data, "category": _category(data)}
    return answer | {"data": data, "cause": cause_answer(row.cause, principal, own=own)}


def _category(data: Mapping[str, Any]) -> str | None:
    """Return the category of a lease's end, even for lines of earlier releases."""
    trouble = data.get("trouble")
    found = category_of(EndReason(data["reason"]), Trouble(trouble) if trouble else None)
    return None if found is None else found.value


def explanation_answer(explanation: Explanation, principal: Principal) -> dict[str, Any]:
    """Return the explanation of a job's state, as far as the caller may see it."""
    answer = {name: getattr(explanation, name) for name in explanation.__dataclass_fields__}
    own = explanation.job_id
    for name in ("granted", "ended"):
        answer[name] = cause_answer(answer[name], principal, own=own)
    answer["ahead"] = [
        one if principal.sees(one.project) else replace(one, job_id="", project="")
        for one in explanation.ahead
    ]
    return answer


def cause_answer(cause: Cause | None, principal: Principal, *, own: str) -> dict[str, Any] | None:
    """Return a cause as far as the caller may see it.

    Args:
        cause: as stored.
        principal: the caller.
        own: id of the job that the cause belongs to; empty for no job.
    """
    if cause is None:
        return None
    seen = cause.seen_by(principal.sees)
    if cause.subject == own != "":
        seen = replace(seen, subject=own, project=cause.project)
    return values_of(CauseOut, seen) | {"round": seen.round_number, "text": seen.words(own)}


def spec_answer(row: JobRow, principal: Principal) -> Mapping[str, Any]:
    """Return a job's specification as the caller may see it.

    The values of its variables are shown only to its owner and to administrators: they often hold
    passwords, and a dashboard needs only the names. The values of its secret variables are never
    shown.
    """
    shown = dict(row.spec)
    if "secret_env" in shown:
        shown["secret_env"] = dict.fromkeys(shown["secret_env"], BLOT)
    if shown.get("model"):
        shown["model"] = orjson.loads(shown["model"])
    if principal.knows_values_of(row.owner):
        return shown
    if "env" in shown:
        shown["env"] = dict.fromkeys(shown["env"], BLOT)
    if "kubernetes" in shown:
        shown["kubernetes"] = _without_values(shown["kubernetes"])
    return shown


def _without_values(pods: Any) -> Any:
    """Return a job's pod options with the values of variables masked.

    In a pod's template they stand in lists under ``env``, each with a name and a value.
    """
    if isinstance(pods, list):
        return [_without_values(item) for item in pods]
    if not isinstance(pods, dict):
        return pods
    shown = {name: _without_values(value) for name, value in pods.items()}
    if isinstance(shown.get("env"), list):
        shown["env"] = [
            item | {"value": BLOT} if isinstance(item, dict) and "value" in item else item
            for item in shown["env"]
        ]
    return shown


def token_answer(row: TokenRow) -> dict[str, Any]:
    """Return a token as it is listed: without its hash."""
    return values_of(TokenOut, row)
