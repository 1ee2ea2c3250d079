"""The view for submitting jobs: by a short form or as YAML, tried first if the user wants that."""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import yaml
from starlette.responses import RedirectResponse

from api.answers import dump_json
from api.auth.roles import Role
from api.context import context_of
from api.jobs.conversions import ARRAY_COUNT, ARRAY_INDEX, BLOT, spec_answer
from api.jobs.selection import visible_job
from api.pages.copying import as_asked, write_yaml
from api.pages.model_forms import zone_of
from api.pages.rendering import render
from api.pages.routing import action, page, problem_of_form
from api.problems import ProblemError
from api.routes.jobs_submit import take_jobs
from api.threads import in_thread
from scheduler.errors import InputError, LeaseholdError
from scheduler.views.job_documents import check_values, error_of_mistakes, read_documents
from scheduler.views.times import parse_span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from api.auth.roles import Principal
    from api.problems import PublicError

#: Most characters of jobs, and jobs with a result of their own on the page.
MOST_TEXT: Final = 2**19
MOST_SHOWN: Final = 20
_KEY: Final = re.compile("[0-9a-f]{32}")
#: Largest call of curl that is shown; a shell refuses longer arguments.
_MOST_CALL: Final = 65_536
_EXAMPLE: Final = """\
name: train
command: [python, train.py, --epochs, "10"]
scale_factor: 1
duration: 30m
"""
#: Fields of the short form -> their fields in a job.
_FIELDS: Final = {
    "name": "name",
    "command": "command",
    "project": "project",
    "workers": "scale_factor",
    "job_type": "job_type",
    "steps": "total_steps",
    "duration": "duration_s",
}


async def show_form(request: Request, principal: Principal) -> Response:
    """Show the forms; with ``from`` in the URL, filled with a job that exists."""
    text, notes = _EXAMPLE, list[str]()
    if job_id := request.query_params.get("from", ""):
        row = await visible_job(context_of(request), principal, job_id)
        spec, notes = _without_secrets(spec_answer(row, principal))
        await _drop_what_is_gone(request, spec, notes)
        text = await context_of(request).heavily(write_yaml, as_asked(spec))
    return _show(request, text=text, notes=notes)


async def submit(request: Request, principal: Principal, form: dict[str, str]) -> Response:
    """Try jobs, or submit them; both show the result, and a job that is alone leads to its page."""
    is_trial = form.get("do") != "submit"
    text, key = form.get("text", ""), form.get("key", "")
    key = key if _KEY.fullmatch(key) else secrets.token_hex(16)
    fields = {name: form.get(name, "").strip() for name in _FIELDS}
    try:
        if "text" not in form:
            job = read_fields(fields)
            text = write_yaml(job)
            jobs = [job]
        else:
            jobs = await context_of(request).heavily(read_text, text)
        asked = jobs if is_trial else _with_ids(jobs, key)
        document, _ = await take_jobs(
            request, principal, {"jobs": asked}, dry_run=is_trial, forecast=is_trial
        )
    except (LeaseholdError, ProblemError) as error:
        problem, more = problem_of_form(error), getattr(error, "__notes__", ())
        return _show(request, text=text, fields=fields, problem=problem, more=more, key=key)
    results = document["jobs"]
    if not is_trial and len(results) == 1 and results[0]["error"] is None:
        return RedirectResponse(f"./jobs/{quote(results[0]['job_id'], safe='')}", 303)
    done = not is_trial and all(one["error"] is None for one in results)
    return _show(
        request,
        text=text,
        fields=fields,
        results=results,
        is_trial=is_trial,
        curl=_curl(jobs),
        key="" if done else key,
    )


def _with_ids(jobs: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Return jobs with client ids: the same job of the same form is submitted once."""
    made, times = [], Counter[str]()
    for job in jobs:
        digest = hashlib.sha256(dump_json(job)).hexdigest()[:16]
        times[digest] += 1
        made.append({"client_id": f"{key}-{digest}-{times[digest]}"} | job)
    return made


def read_fields(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the job of the short form.

    Raises:
        InputError: a field cannot be read.
    """
    job: dict[str, Any] = {}
    for name, field in _FIELDS.items():
        if text := fields[name]:
            job[field] = _value(name, text)
    check_values(job, word=str)
    return job


def _value(name: str, text: str) -> Any:
    try:
        if name == "command":
            return shlex.split(text)
        if name == "workers":
            return int(text)
        if name == "steps":
            return float(text)
    except ValueError as error:
        if name == "command":
            raise InputError(f"command is '{text[:80]}': {error}; close each quote") from None
        raise InputError(f"{name} is '{text[:80]}'; give a number") from None
    return parse_span(text, name=name) if name == "duration" else text


def read_text(text: str) -> list[dict[str, Any]]:
    """Return the jobs of a text in YAML or JSON.

    Raises:
        InputError: it cannot be read, or a time in it has no zone.
    """
    if len(text) > MOST_TEXT:
        raise InputError(
            f"the text has {len(text)} characters, and {MOST_TEXT} are the most; send a file with "
            "`leasehold submit`"
        )
    if _has_aliases(text):
        raise InputError(
            "the text has aliases (*name), which stand for other parts of it; write these parts "
            "out, or send the file with `leasehold submit`"
        )
    mistakes: list[str] = []
    found = read_documents(text, kind="yaml", where="the text", mistakes=mistakes)
    mistakes += [
        f"deadline is '{job['deadline']}', without a zone, which this page does not know; write "
        f"{job['deadline']}+00:00 for UTC, or a span such as 6h"
        for _, job in found
        if zone_of(str(job.get("deadline", ""))) is False
    ]
    if mistakes:
        raise error_of_mistakes(mistakes)
    return [_with_span(job, written) for job, written in found]


def _with_span(job: dict[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job whose deadline counts from its receipt, if it was written as a span.

    So the same text stands for the same job, whenever it is sent.
    """
    text = str(written.get("deadline", ""))
    if not text or zone_of(text) is not None:
        return job
    return {name: value for name, value in job.items() if name != "deadline_s"} | {
        "deadline_in_s": parse_span(text, name="deadline")
    }


def _has_aliases(text: str) -> bool:
    """Return whether a text in YAML has aliases: a few of them may stand for any amount."""
    try:
        events = yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return any(isinstance(event, yaml.AliasEvent) for event in events)
    except yaml.YAMLError:
        return False  # the reader says where the fault is


def _without_secrets(spec: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a specification without values that the reader does not know, and notes about them.

    Its deadline is left out too, since it has been set for the other job.
    """
    notes: list[str] = []
    given = {field: value for field, value in spec.items() if field != "deadline_s"}
    if given.get("array_index") is not None:
        notes.append(f"{given['name']} is an element of an array; this is that element alone")
        own = {ARRAY_INDEX, ARRAY_COUNT}
        given["name"] = given["name"].partition("[")[0]
        given["env"] = {name: value for name, value in given["env"].items() if name not in own}
    return {name: _without_blots(value, name, notes) for name, value in given.items()}, notes


async def _drop_what_is_gone(request: Request, spec: dict[str, Any], notes: list[str]) -> None:
    """Drop jobs that it depends on and that do not exist any more."""
    others = spec.get("depends_on") or ()
    known = await in_thread(context_of(request).store.projects_of, others)
    if gone := [one for one in others if one not in known]:
        spec["depends_on"] = [one for one in others if one in known]
        notes.append(f"depends_on: left out {', '.join(gone[:MOST_SHOWN])}, which do not exist")


def _without_blots(value: Any, name: str, notes: list[str]) -> Any:
    if isinstance(value, list):
        return [_without_blots(item, name, notes) for item in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, item in value.items():
        if item == BLOT:
            notes.append(f"{name}.{key}: its value is not shown; add it")
        else:
            made[key] = _without_blots(item, f"{name}.{key}", notes)
    return made


def _curl(jobs: list[dict[str, Any]]) -> str:
    body = dump_json(jobs[0] if len(jobs) == 1 else {"jobs": jobs}).decode()
    return (
        'curl -H "Authorization: Bearer $LEASEHOLD_TOKEN" -H "Content-Type: application/json" '
        f'-d {shlex.quote(body)} "$LEASEHOLD_SERVER/v1/jobs"'
    )


def _show(
    request: Request,
    *,
    text: str,
    fields: Mapping[str, str] | None = None,
    notes: list[str] | None = None,
    problem: PublicError | None = None,
    more: Sequence[str] = (),
    results: list[dict[str, Any]] | None = None,
    is_trial: bool = False,
    curl: str = "",
    key: str = "",
) -> Response:
    found = results or []
    return render(
        request,
        "submit.html",
        status=200 if problem is None else problem.status,
        view="Submit",
        text=text,
        fields=fields or {},
        notes=notes or [],
        problem=problem.document() if problem else None,
        mistakes=more[:MOST_SHOWN],
        results=found[:MOST_SHOWN],
        more=max(len(found) - MOST_SHOWN, 0),
        accepted=sum(_is_good(one) for one in found),
        count=len(found),
        is_trial=is_trial,
        curl=curl if len(curl) <= _MOST_CALL else "",
        key=key or secrets.token_hex(16),
    )


def _is_good(result: Mapping[str, Any]) -> bool:
    """Return whether a job was submitted, or could run."""
    return result["error"] is None and ("fit" not in result or result["fit"]["fits"])


ROUTES: Final = (
    page("/submit", show_form, role=Role.USER),
    action("/submit", submit),
)
