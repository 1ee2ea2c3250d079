"""What a submission needs of the world before it is decided: ids, hashes and stored rows."""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.control.facts import JobsSubmitted
from scheduler.control.specs import UNKNOWN_DURATION_S, spec_to_json
from scheduler.protocol.bounds import plain_json
from scheduler.runtime.secret_box import SecretBox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.control.requests import Submission
    from scheduler.domain.spec import JobSpec
    from scheduler.store.protocol import Store

#: What the JSON has where a text, or a number, may be one that cannot be stored.
_SUSPECT = re.compile(r"\\u0000|\\ud[89a-f]|NaN|Infinity|\d{19}")
#: Letters and digits of the random part of job ids; none that look alike.
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"


def submitted(
    store: Store, submissions: Sequence[Submission], *, actor: str, box: SecretBox | None = None
) -> JobsSubmitted:
    """Return the fact that somebody submits jobs; reads the store, so run it in a thread.

    Args:
        store: what is known.
        submissions: the jobs.
        actor: who submits them.
        box: seals their secret variables; one without a key by default.

    Raises:
        InputError: a job has secret variables, and there is no key.
    """
    by_owner: dict[str, set[str]] = {}
    wanted: set[str] = set()
    for item in submissions:
        if item.client_id:
            by_owner.setdefault(item.owner, set()).add(item.client_id)
        wanted.update(other for other in (item.job_id, *item.spec.depends_on) if other)
    keys = {
        (owner, key): row
        for owner, names in by_owner.items()
        for key, row in store.jobs_of_keys(owner, names).items()
    }
    rows = ((job_id, store.job(job_id)) for job_id in sorted(wanted))
    digests = tuple(digest_of(item.spec) for item in submissions)
    job_ids = tuple(item.job_id or new_job_id(item.spec.name) for item in submissions)
    return JobsSubmitted(
        submissions=tuple(
            _sealed(item, job_id, box or SecretBox()) if digest else _without_secrets(item)
            for item, job_id, digest in zip(submissions, job_ids, digests, strict=True)
        ),
        job_ids=job_ids,
        digests=digests,
        keys=keys,
        rows={job_id: row for job_id, row in rows if row is not None},
        actor=actor,
    )


def _sealed(item: Submission, job_id: str, box: SecretBox) -> Submission:
    return replace(item, spec=box.sealed(item.spec, job_id)) if item.spec.secret_env else item


def _without_secrets(item: Submission) -> Submission:
    """Return a job that is refused; what refuses it need not know them."""
    return replace(item, spec=replace(item.spec, secret_env={}))


def new_job_id(name: str) -> str:
    """Return an id for a job: its name, as far as that is plain, and a random part."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "job"
    drawn, letters = secrets.randbelow(len(_LETTERS) ** 8), ""
    for _ in range(8):
        drawn, place = divmod(drawn, len(_LETTERS))
        letters += _LETTERS[place]
    return f"{plain}-{letters}"


def digest_of(spec: JobSpec) -> str:
    """Return a hash of a specification, to tell a repetition from another job.

    The deadline is left out: where it was given as a duration, a repetition computes another one.
    Of secret variables only the names count.
    Empty where the specification can neither be stored nor told to an agent.
    """
    data = given = spec_to_json(spec)
    # What is as deep as it likes, or not part of the text below, is looked at value by value.
    if (spec.kubernetes or spec.secret_env) and not plain_json(given):
        return ""
    if spec.deadline_s is not None:
        if not math.isfinite(spec.deadline_s):
            return ""
        data = {name: value for name, value in given.items() if name != "deadline_s"}
    if spec.secret_env:  # a hash of secrets would tell who guesses them that he is right
        data = data | {"secret_env": sorted(spec.secret_env)}
    if spec.total_steps is None and spec.duration_s is None:
        # The release before wrote it down so; what was sent to it may be sent again to this one.
        data = data | {"duration_s": UNKNOWN_DURATION_S}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    if _SUSPECT.search(text) and not plain_json(given):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()
