"""What a submission needs of the world before it is decided: ids, hashes and stored rows."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import TYPE_CHECKING

from scheduler.control.facts import JobsSubmitted
from scheduler.control.specs import UNKNOWN_DURATION_S, spec_to_json
from scheduler.protocol.bounds import plain_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.control.requests import Submission
    from scheduler.domain.spec import JobSpec
    from scheduler.store.protocol import Store

#: Letters and digits of the random part of job ids; none that look alike.
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"


def submitted(store: Store, submissions: Sequence[Submission], *, actor: str) -> JobsSubmitted:
    """Return the fact that somebody submits jobs; reads the store, so run it in a thread."""
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
    return JobsSubmitted(
        submissions=tuple(submissions),
        job_ids=tuple(item.job_id or new_job_id(item.spec.name) for item in submissions),
        digests=tuple(digest_of(item.spec) for item in submissions),
        keys=keys,
        rows={job_id: row for job_id, row in rows if row is not None},
        actor=actor,
    )


def new_job_id(name: str) -> str:
    """Return an id for a job: its name, as far as that is plain, and a random part."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "job"
    return f"{plain}-{''.join(secrets.choice(_LETTERS) for _ in range(8))}"


def digest_of(spec: JobSpec) -> str:
    """Return a hash of a specification, to tell a repetition from another job.

    The deadline is left out: where it was given as a duration, a repetition computes another one.
    Empty where the specification can neither be stored nor told to an agent.
    """
    data = spec_to_json(spec)
    if not plain_json(data):
        return ""
    data.pop("deadline_s", None)
    if spec.total_steps is None and spec.duration_s is None:
        # The release before wrote it down so; what was sent to it may be sent again to this one.
        data["duration_s"] = UNKNOWN_DURATION_S
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
