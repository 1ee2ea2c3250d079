"""The content of the daemon under load: made-up job types, jobs, and finished ones.

For ``service_load.py``.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING, Any

from api.auth.tokens import hash_secret, new_secret
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason
from scheduler.domain.rows import AttemptRow, HistoryRow, JobRow, Projections
from scheduler.store.protocol import Entry
from scheduler.store.rows import TokenRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.store.sql.store import SqlStore

WORKER_TYPES = {"fast": 1.0, "middle": 0.55, "slow": 0.3}
JOB_TYPES = 26
SCALE_FACTORS = (1, 1, 1, 2, 4)


def throughputs() -> dict[str, dict[str, float]]:
    """Return made-up figures: worker type -> "job type/scale factor" -> steps/s."""
    rng = random.Random(4)  # noqa: S311
    rates: dict[str, dict[str, float]] = {name: {} for name in WORKER_TYPES}
    for index in range(JOB_TYPES):
        base = rng.uniform(1.0, 40.0)
        for name, speed in WORKER_TYPES.items():
            own = base * speed ** rng.uniform(0.3, 1.6)
            for scale in sorted(set(SCALE_FACTORS)):
                rates[name][f"type-{index:02}/{scale}"] = round(own * scale**0.9, 4)
    return rates


def jobs() -> Iterator[dict[str, Any]]:
    """Yield jobs without end."""
    rng = random.Random(5)  # noqa: S311
    for index in itertools.count():
        job_type = f"type-{rng.randrange(JOB_TYPES):02}"
        yield {
            "name": f"train-{index}",
            "client_id": f"load-{index}",
            "project": f"team-{index % 7}",
            "command": ["python", "train.py", "--seed", str(index)],
            "env": {"TYPE": job_type, "DATA": "/data/imagenet"},
            "job_type": job_type,
            "scale_factor": [rng.choice(SCALE_FACTORS)],
            "total_steps": 1e7,
            "notice_s": 2,
            "grace_s": 2,
            "labels": {"team": f"t{index % 7}"},
        }


#: Workers of each project, in all and of the fastest type: seven of them cap most of 8,000 workers.
QUOTA, QUOTA_OF = 1000, {"fast": 300}
HALF_LIFE_S = 6 * 3600.0


def shares(now_s: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield requests (method, path, body) that put quotas, budgets, reservations, decay to use."""
    parameters = {"usage_half_life_s": HALF_LIFE_S}
    yield "PUT", "/v1/policy", {"name": "max_min_fairness", "parameters": parameters}
    for team in range(7):
        quota = {"max_workers": QUOTA, "max_workers_of": QUOTA_OF, "max_workers_per_user": QUOTA}
        yield "PUT", f"/v1/projects/team-{team}", quota | {"budget_gpu_hours": 1e6}
    for number, worker_type in enumerate(WORKER_TYPES):
        window = {"from_s": now_s + 3600.0 * number, "until_s": now_s + 3600.0 * (number + 1)}
        asked = {"name": f"window-{number}", "worker_type": worker_type, "workers": 200}
        yield "POST", "/v1/reservations", asked | window | {"project": f"team-{number}"}


# -- the store beforehand --------------------------------------------------------------------------


def fill(store: SqlStore, finished: int, nodes: int) -> dict[str, str]:
    """Store finished jobs with their leases and history, and the tokens; returns the tokens."""
    now_s = time.time()
    leader = store.acquire_leadership("fill", now_s=now_s, ttl_s=600.0)
    assert leader is not None
    chunk = 5000
    for sequence, first in enumerate(range(1, finished + 1, chunk), start=1):
        numbers = range(first, min(first + chunk, finished + 1))
        changes = Projections(
            jobs=tuple(_finished_job(n, now_s - 86400.0) for n in numbers),
            attempts=tuple(_attempt(n, now_s - 86400.0) for n in numbers),
            history=tuple(line for n in numbers for line in _history(n, now_s - 86400.0)),
        )
        entry = Entry(sequence=sequence, now_s=now_s, events=(), projections=changes)
        store.commit(entry, token=leader.token)
    store.release_leadership(leader.token)
    names = {"admin": "admin"} | {f"node-{i:04}": "agent" for i in range(nodes)}
    tokens = {}
    for name, role in names.items():
        tokens[name] = new_secret()
        store.add_token(
            TokenRow(
                token_id=f"t-{name}",
                secret_hash=hash_secret(tokens[name]),
                subject=name,
                role=role,
                created_s=now_s,
            )
        )
    return tokens


def _finished_job(number: int, at_s: float) -> JobRow:
    return JobRow(
        job_id=f"old-{number:06}",
        number=number,
        name=f"train-{number}",
        project=f"team-{number % 7}",
        owner="admin",
        job_type=f"type-{number % JOB_TYPES:02}",
        status=JobStatus.COMPLETED,
        total_steps=1e5,
        steps_done=1e5,
        attempts=1,
        submitted_s=at_s + number * 0.1,
        started_s=at_s + number * 0.1 + 60.0,
        finished_s=at_s + number * 0.1 + 3600.0,
        updated_s=at_s + number * 0.1 + 3600.0,
        labels={"team": f"t{number % 7}"},
        spec={"name": f"train-{number}", "command": ["python", "train.py"]},
    )


def _attempt(number: int, at_s: float) -> AttemptRow:
    return AttemptRow(
        lease_id=10**12 + number,
        job_id=f"old-{number:06}",
        attempt=1,
        token=1,
        worker_type="fast",
        workers=(number % 8000,),
        nodes=(f"node-{number % 1000:04}",),
        start_s=at_s + number * 0.1 + 60.0,
        deadline_s=at_s + number * 0.1 + 3700.0,
        ended_s=at_s + number * 0.1 + 3600.0,
        end_reason=EndReason.COMPLETED,
        steps_done=1e5,
        exit_code=0,
    )


def _history(number: int, at_s: float) -> Iterator[HistoryRow]:
    for kind in ("job_submitted", "lease_granted", "lease_ended", "job_completed"):
        yield HistoryRow(
            at_s=at_s + number * 0.1,
            kind=kind,
            subject_kind="job",
            subject=f"old-{number:06}",
            data={"reason": EndReason.COMPLETED.value} if kind == "lease_ended" else {},
        )
