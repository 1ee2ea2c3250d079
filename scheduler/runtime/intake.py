"""Ids, hashes and stored rows that a submission needs before control decides on it."""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.control.facts.facts import JobsSubmitted
from scheduler.control.facts.specs import UNKNOWN_DURATION_S, spec_to_json
from scheduler.protocol.bounds import plain_json
from scheduler.secret_box import SecretBox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from scheduler.control.facts.requests import Submission
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.store.protocol import Store

#: Parts of JSON that show text or numbers that perhaps cannot be stored.
_SUSPECT = ("\\u0000", "\\ud", "NaN", "Infinity")
_LONG = re.compile(r"\d{19}")
#: Letters and digits of the random part of job ids; no two look alike.
LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
#: Random bytes of a job id; so many that all letters are almost equally likely.
_RANDOM_BYTES = 16
_UNPLAIN = re.compile(r"[^a-z0-9]+")


def submission_fact(
    store: Store, submissions: Sequence[Submission], *, actor: str, box: SecretBox | None = None
) -> JobsSubmitted:
    """Return the fact that a user submits jobs; reads the store, so run it in a thread.

    Args:
        store: the store.
        submissions: the jobs.
        actor: the user that submits them.
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
    documents = tuple(spec_to_json(item.spec) for item in submissions)
    digests = tuple(
        digest_of(item.spec, document)
        for item, document in zip(submissions, documents, strict=True)
    )
    drawn_ids = new_job_ids([item.spec.name for item in submissions])
    job_ids = tuple(item.job_id or new for item, new in zip(submissions, drawn_ids, strict=True))
    secret = any(item.spec.secret_env for item in submissions)
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
        documents=() if secret else documents,  # they show the jobs before sealing
    )


def _sealed(item: Submission, job_id: str, box: SecretBox) -> Submission:
    return replace(item, spec=box.sealed(item.spec, job_id)) if item.spec.secret_env else item


def _without_secrets(item: Submission) -> Submission:
    """Return a refused job without its secrets, which the refusal does not need."""
    return replace(item, spec=replace(item.spec, secret_env={}))


def new_job_ids(names: Sequence[str]) -> list[str]:
    """Return an id for each job: the plain characters of its name, and a random part."""
    drawn = secrets.token_bytes(_RANDOM_BYTES * len(names))  # at once: each draw is a system call
    ids = []
    for index, name in enumerate(names):
        number = int.from_bytes(drawn[index * _RANDOM_BYTES : (index + 1) * _RANDOM_BYTES])
        plain = _UNPLAIN.sub("-", name.lower()).strip("-")[:40].strip("-") or "job"
        letters = ""
        for _ in range(8):
            number, place = divmod(number, len(LETTERS))
            letters += LETTERS[place]
        ids.append(f"{plain}-{letters}")
    return ids


def digest_of(spec: JobSpec, document: Mapping[str, Any] | None = None) -> str:
    """Return a hash of a specification, which distinguishes a repeated job from another one.

    The deadline is left out: if it was given as a duration, a repetition computes another one. Of
    secret variables only the names count. Empty if the specification can neither be stored nor sent
    to an agent.

    Args:
        spec: the specification.
        document: its plain values, if the caller has them already.
    """
    data = given = spec_to_json(spec) if document is None else document
    # Values of any depth, or outside the text below, are checked one by one.
    if (spec.kubernetes or spec.secret_env) and not plain_json(given):
        return ""
    if spec.deadline_s is not None:
        if not math.isfinite(spec.deadline_s):
            return ""
        data = {name: value for name, value in given.items() if name != "deadline_s"}
    if spec.secret_env:  # a hash of secrets would confirm a right guess
        data = {**data, "secret_env": sorted(spec.secret_env)}
    if spec.total_steps is None and spec.duration_s is None:
        # The previous release stored it so; a request to that release may be repeated to this one.
        data = {**data, "duration_s": UNKNOWN_DURATION_S}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    if (any(part in text for part in _SUSPECT) or _LONG.search(text)) and not plain_json(given):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()
