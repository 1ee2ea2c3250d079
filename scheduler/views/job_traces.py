"""Spans of a job's trace, made from the job's history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.jobs.trace_ids import span_id, trace_id
from scheduler.domain.lease_life import EndReason
from scheduler.views.history_kinds import EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.domain.rows import HistoryRow, JobRow

_BAD_JOB_ENDS: Final = frozenset({EventKind.JOB_FAILED, EventKind.JOB_REFUSED})
_JOB_ENDS: Final = _BAD_JOB_ENDS | {EventKind.JOB_COMPLETED, EventKind.JOB_CANCELLED}
_BAD_LEASE_ENDS: Final = frozenset({EndReason.FAILED, EndReason.LOST, EndReason.OOM})
#: Kinds of history rows that end a span.
SPAN_ENDS: Final = _JOB_ENDS | {EventKind.LEASE_GRANTED, EventKind.LEASE_ENDED}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """Something that happened within a span."""

    name: str
    at_s: float
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpan:
    """A span of a job's trace.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        parent_id: of the span that contains it; empty for the span of the job.
        name: shown by trace viewers.
        start_s: seconds since the Unix epoch.
        end_s: seconds since the Unix epoch.
        attributes: figures and texts.
        events: events within it.
        failed: whether the job or the attempt failed.
        ended_by: id of the history row that ended it.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, Any]
    events: tuple[SpanEvent, ...]
    failed: bool
    ended_by: int


def spans_of(job: JobRow, history: Sequence[HistoryRow]) -> list[JobSpan]:
    """Return the spans of a job that have ended, in the order in which they ended.

    The span of the job lasts from its submission to its end. Its children follow one another: the
    job waits, or an attempt holds workers. An attempt with a known first step has two children:
    ``launch`` until its processes run, and ``first step`` until that step is reported.

    Args:
        job: as stored.
        history: all rows about the job, oldest first.
    """
    builder = _SpanBuilder(job)
    for row in history:
        builder.add_row(row)
    return builder.spans


class _SpanBuilder:
    """Builds the spans of one job from the rows of its history, oldest first."""

    def __init__(self, job: JobRow) -> None:
        self.spans: list[JobSpan] = []
        self._job = job
        self._waits_from_s: float | None = job.submitted_s
        self._attempts = 0
        self._grant: HistoryRow | None = None
        self._first_step: HistoryRow | None = None
        #: Events since the last child of the job's span ended.
        self._events: list[SpanEvent] = []

    def add_row(self, row: HistoryRow) -> None:
        if row.kind == EventKind.LEASE_GRANTED:
            self._end_waiting(row)
            self._grant, self._attempts = row, row.data["attempt"]
        elif row.kind == EventKind.LEASE_ENDED:
            self._end_attempt(row)
        elif row.kind in _JOB_ENDS:
            self._end_waiting(row)
            self._end_job(row)
        else:
            if row.kind == EventKind.FIRST_STEP:
                self._first_step = row
            event = SpanEvent(name=row.kind, at_s=row.at_s, attributes=_attributes(row))
            self._events.append(event)

    def _end_waiting(self, row: HistoryRow) -> None:
        since_s, self._waits_from_s = self._waits_from_s, None
        if since_s is None or (row.kind in _JOB_ENDS and row.at_s <= since_s):
            return  # the job ends with its last attempt
        part = f"waiting {self._attempts + 1}"
        self._add("waiting", part, since_s, row, attributes=_attributes(row))

    def _end_attempt(self, row: HistoryRow) -> None:
        grant, self._grant = self._grant, None
        first_step, self._first_step = self._first_step, None
        if grant is None:
            return  # retention has deleted the row of the grant
        part = f"attempt {self._attempts}"
        if first_step is not None:
            self._add_start(part, grant, first_step, row)
        attributes = _attributes(grant) | _attributes(row, prefix="leasehold.end.")
        failed = row.data["reason"] in _BAD_LEASE_ENDS
        self._add(part, part, grant.at_s, row, attributes=attributes, failed=failed)
        self._waits_from_s = row.at_s

    def _add_start(
        self, parent: str, grant: HistoryRow, first_step: HistoryRow, row: HistoryRow
    ) -> None:
        """Add the children of an attempt: its launch, and the time until its first step."""
        runs_s = grant.at_s + first_step.data.get("running_s", 0.0)
        step_s = grant.at_s + first_step.data["first_step_s"]
        if "running_s" in first_step.data:
            self._add("launch", f"{parent} launch", grant.at_s, row, parent=parent, end_s=runs_s)
        self._add("first step", f"{parent} first step", runs_s, row, parent=parent, end_s=step_s)

    def _end_job(self, row: HistoryRow) -> None:
        job = self._job
        attributes = {
            "leasehold.job": job.job_id,
            "leasehold.project": job.project,
            "leasehold.owner": job.owner,
            "leasehold.job_type": job.job_type,
            "leasehold.status": row.kind.removeprefix("job_"),
            "leasehold.attempts": self._attempts,
        }
        self._add(
            *(job.name or job.job_id, "job", job.submitted_s, row),
            attributes=attributes,
            failed=row.kind in _BAD_JOB_ENDS,
            parent="",
        )
        self._waits_from_s = row.at_s  # the job may be requeued

    def _add(
        self,
        name: str,
        part: str,
        start_s: float,
        row: HistoryRow,
        *,
        attributes: Mapping[str, Any] | None = None,
        failed: bool = False,
        parent: str = "job",
        end_s: float | None = None,
    ) -> None:
        job_id = self._job.job_id
        events: tuple[SpanEvent, ...] = ()
        if parent == "job":
            events, self._events = tuple(self._events), []
        self.spans.append(
            JobSpan(
                trace_id=trace_id(job_id),
                span_id=span_id(job_id, part),
                parent_id=span_id(job_id, parent) if parent else "",
                name=name,
                start_s=start_s,
                end_s=max(row.at_s if end_s is None else end_s, start_s),
                attributes=attributes or {},
                events=events,
                failed=failed,
                ended_by=row.event_id,
            )
        )


def _attributes(row: HistoryRow, *, prefix: str = "leasehold.") -> dict[str, Any]:
    """Return the figures of a row that a span can hold, and the row's cause in words."""
    found: dict[str, Any] = {}
    for name, value in row.figures.items():
        if isinstance(value, bool | int | float | str):
            found[prefix + name] = value
        elif isinstance(value, list | tuple) and value:
            found[prefix + name] = ", ".join(map(str, value))
    if row.actor:
        found[f"{prefix}actor"] = row.actor
    if row.cause is not None and (words := row.cause.words(row.subject)):
        found[f"{prefix}cause"] = words
    return found
