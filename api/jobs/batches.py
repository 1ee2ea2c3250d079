"""Expand a submission: count its jobs first, then build them beside the event loop.

All functions except ``count_jobs`` are slow (about 100 ms for a thousand jobs), so run in a thread.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from pydantic import ValidationError

from api.jobs.conversions import expand_submissions, project_of, to_spec
from api.jobs.pod_preview import pod_preview
from api.problems import FieldProblem, ProblemError, field_problems, invalid_request
from api.schemas.jobs import MOST_JOBS, JobIn, given_twice
from scheduler.domain.jobs.placeholders import count_placeholders, needs_array, shareable_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from api.auth.roles import Principal
    from scheduler.control.facts.requests import Submission
    from scheduler.domain.jobs.spec import JobSpec

#: Different expressions of one request: each is compiled, which may take a tenth of a second.
MOST_EXPRESSIONS = 20
#: Different jobs that those of one request may wait for: each is looked up.
MOST_DEPENDENCIES = 1000
#: How many times a body's largest size the jobs of one request may have once arrays are written
#: out: each element is stored by itself.
EXPANSION = 4
#: Placeholders of one job.
MOST_PLACEHOLDERS = 1000
#: Different models of one request: to plan one for one worker type and count takes 5 ms.
MOST_MODELS = 20
_DIFFERENT = {
    "progress_regex": MOST_EXPRESSIONS,
    "depends_on": MOST_DEPENDENCIES,
    "model": MOST_MODELS,
}
#: Bad fields that are listed of one job among many.
MOST_ERRORS_OF_ONE = 10

#: A job that was read, or why it cannot be.
Read: TypeAlias = "JobIn | ProblemError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A job that may be submitted.

    Attributes:
        job: as submitted.
        spec: the domain's value; an array counts as one job here.
        submissions: its elements; empty for a dry run.
    """

    job: JobIn
    spec: JobSpec
    submissions: tuple[Submission, ...] = ()


def count_jobs(items: Sequence[Any], *, most_jobs: int, max_body_bytes: int) -> None:
    """Refuse a request that is too large, as far as that shows before its jobs are read.

    Args:
        items: the jobs as they came, not checked in any way.
        most_jobs: that one request may stand for, the elements of arrays counted out.
        max_body_bytes: largest body.

    Raises:
        ProblemError: it has too many jobs, bytes or expressions.
    """
    counts = [_elements(item) for item in items]
    jobs = sum(counts)
    if jobs > most_jobs:
        raise _too_much("jobs", jobs, f"with all arrays at most {most_jobs} jobs are taken")
    for name, most in _DIFFERENT.items():
        different = len({value for item in items for value in _values(item, name)})
        if different > most:
            problem = f"have {different} different values of {name}, and at most {most} are taken"
            raise _too_much("jobs", different, f"{problem} at once; send several requests")
    if jobs == len(items):
        return  # the body has them all written out
    size, most = 0, EXPANSION * max_body_bytes
    for item, count in zip(items, counts, strict=True):
        size += len(orjson.dumps(item)) * count
    if size > most:
        raise _too_much(
            "jobs",
            size,
            f"are {size} bytes with all arrays written out, and at most {most} are taken; "
            "move the elements' common parts into a file, or send fewer at once",
        )


def _elements(item: Any) -> int:
    """Return how many jobs an item means; a malformed array counts as one and is refused later."""
    array = item.get("array") if isinstance(item, dict) else None
    count = array.get("count") if isinstance(array, dict) else array
    if isinstance(count, int) and not isinstance(count, bool):
        return min(max(count, 1), MOST_JOBS)
    return 1


def _values(item: Any, name: str) -> list[str]:
    """Return the texts of a field that has one or several."""
    found = item.get(name) if isinstance(item, dict) else None
    if isinstance(found, dict):
        return [repr(found)]
    return [v for v in (found if isinstance(found, list) else [found]) if isinstance(v, str)]


def _too_much(field: str, value: int, problem: str) -> ProblemError:
    return invalid_request([FieldProblem(field=field, value=value, problem=problem)])


def read_jobs(items: Sequence[Any], principal: Principal) -> list[Read]:
    """Return the valid jobs in the caller's projects, or the problems of the others.

    Compiles expressions: to be called in a thread.
    """
    return [_read(item, principal, alone=len(items) == 1) for item in items]


def _read(item: Any, principal: Principal, *, alone: bool) -> Read:
    try:
        job = JobIn.model_validate(item)
    except ValidationError as error:
        problems = field_problems(error.errors(include_url=False), JobIn)
        # Otherwise rules across fields are checked only if each field is right.
        both = given_twice(item) if isinstance(item, dict) else ""
        if both and not any(problem.field == "" for problem in problems):
            problems.append(FieldProblem(field="", value=None, problem=both))
        return invalid_request(problems if alone else problems[:MOST_ERRORS_OF_ONE])
    project = project_of(job, principal)
    if principal.sees(project):
        return job
    names = ", ".join(sorted(principal.projects))
    return ProblemError(
        403,
        f"the token of '{principal.subject}' is confined to {names} and cannot submit to "
        f"project '{project}'; name one of its projects",
    )


def make_submissions(
    found: Sequence[Read],
    visible: AbstractSet[str],
    principal: Principal,
    *,
    keys: Sequence[str] | None,
    now_s: float,
    allows: Collection[str] = (),
) -> list[Made | ProblemError]:
    """Return the expanded jobs, or the problems that prevent their submission.

    Expands arrays: to be called in a thread.

    Args:
        found: the jobs that were read.
        visible: those of the jobs they depend on that exist for the caller.
        principal: the caller.
        keys: client id of each job that names none; None: they are only tried.
        now_s: when the request came.
        allows: pod template fields that are allowed beside the list.
    """
    made = [
        job
        if isinstance(job, ProblemError)
        else _make(
            job,
            visible,
            principal,
            key=None if keys is None else keys[index],
            now_s=now_s,
            allows=allows,
        )
        for index, job in enumerate(found)
    ]
    folders = Counter(folder for job in made if isinstance(job, Made) for folder in _folders(job))
    return [_kept_apart(job, folders) if isinstance(job, Made) else job for job in made]


def _folders(made: Made) -> Iterator[str]:
    """Yield the checkpoint folders of a job; of an array, those of two elements will do."""
    count = 1 if made.job.array is None else min(made.job.array.count, 2)
    for index in range(count):
        spec = made.spec if made.job.array is None else replace(made.spec, array_index=index)
        folder = shareable_folder(spec)
        if folder is not None:
            yield folder


def _kept_apart(made: Made, folders: Mapping[str, int]) -> Made | ProblemError:
    """Return a job, or a problem if it shares its checkpoint folder with another job."""
    folder = made.spec.checkpoint_dir
    if folder is None:
        return made
    if made.job.array is None and needs_array(folder):
        problem = "has {index}, and the job is no array; use {job_id} or {name}"
    elif any(folders[one] > 1 for one in _folders(made)):
        problem = (
            "would be the folder of several jobs, and each would load the checkpoints of another; "
            f"give each its own, such as {folder}/{{job_id}}"
        )
    else:
        return made
    return invalid_request([FieldProblem(field="checkpoint_dir", value=folder, problem=problem)])


def _make(
    job: JobIn,
    visible: AbstractSet[str],
    principal: Principal,
    *,
    key: str | None,
    now_s: float,
    allows: Collection[str],
) -> Made | ProblemError:
    problems = [
        FieldProblem(field=f"depends_on.{i}", value=job_id, problem="there is no such job")
        for i, job_id in enumerate(job.depends_on)
        if job_id not in visible
    ]
    project = project_of(job, principal)
    spec = to_spec(job, project=project, now_s=now_s)
    count = count_placeholders(spec)
    if count > MOST_PLACEHOLDERS:
        words = f"has {count} placeholders; {MOST_PLACEHOLDERS} are taken"
        problems.append(FieldProblem(field="", value=count, problem=words))
    try:
        pod_preview(spec, allows=allows)
    except ProblemError as error:
        if not error.errors:
            return error
        problems += error.errors
    if problems:
        return invalid_request(problems)
    if key is None:
        return Made(job=job, spec=spec)
    elements = expand_submissions(
        job, spec, owner=principal.subject, client_id=job.client_id or key
    )
    return Made(job=job, spec=spec, submissions=tuple(elements))
