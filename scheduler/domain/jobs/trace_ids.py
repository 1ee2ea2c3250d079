"""Ids of a job's OpenTelemetry trace and of its spans (W3C Trace Context).

The scheduler exports a span long after an agent has passed its id to the job's processes. Neither
stores the ids: both compute them from the job's id and the number of the attempt.
See https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

#: Environment variable with the span that a process belongs to.
TRACEPARENT: Final = "TRACEPARENT"


def trace_id(job_id: str) -> str:
    """Return the 32 hexadecimal digits of a job's trace."""
    return sha256(f"leasehold trace {job_id}".encode()).hexdigest()[:32]


def span_id(job_id: str, part: str) -> str:
    """Return the 16 hexadecimal digits of a span of a job.

    Args:
        job_id: the job.
        part: which span of the job, such as ``job``, ``attempt 2`` or ``waiting 2``.
    """
    return sha256(f"leasehold span {job_id} {part}".encode()).hexdigest()[:16]


def traceparent(job_id: str, attempt: int) -> str:
    """Return the value of ``TRACEPARENT`` for the processes of an attempt."""
    return f"00-{trace_id(job_id)}-{span_id(job_id, f'attempt {attempt}')}-01"
