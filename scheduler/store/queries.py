"""Queries of the store: filters, orders, cursors and pages."""

from __future__ import annotations

import base64
import binascii
import enum
import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.errors import InputError
from scheduler.store.filters import JobFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.rows import JobRow

#: Most rows of one page.
MAX_LIMIT = 1000


class JobOrder(enum.StrEnum):
    """By what a list of jobs is sorted; ties by the order of submission."""

    SUBMITTED = "submitted"
    UPDATED = "updated"
    NAME = "name"
    WEIGHT = "weight"
    FINISHED = "finished"  #: lists only jobs that have ended
    DEADLINE = "deadline"  #: lists only jobs with a deadline


#: The attribute of ``JobRow`` that each order sorts by.
SORT_KEYS: Mapping[JobOrder, str] = MappingProxyType(
    {
        JobOrder.SUBMITTED: "number",
        JobOrder.UPDATED: "updated_s",
        JobOrder.NAME: "name",
        JobOrder.WEIGHT: "weight",
        JobOrder.FINISHED: "finished_s",
        JobOrder.DEADLINE: "deadline_s",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """A page of a list of jobs.

    Attributes:
        where: the selection of jobs.
        order: the sort key.
        descending: whether the largest comes first; by default newest first.
        limit: rows of the page.
        cursor: ``JobPage.next_cursor`` of the page before, with the same order; or None.
    """

    where: JobFilter = field(default_factory=JobFilter)
    order: JobOrder = JobOrder.SUBMITTED
    descending: bool = True
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        """Refuse a limit outside 1 to ``MAX_LIMIT``."""
        check_limit(self.limit)


class JobKey(enum.StrEnum):
    """By what jobs are counted: columns of ``JobRow``."""

    PROJECT = "project"
    OWNER = "owner"
    JOB_TYPE = "job_type"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Some jobs of a list.

    Attributes:
        rows: in the order asked for.
        next_cursor: the start of the next page; None after the last one.
    """

    rows: tuple[JobRow, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """Lines of history, oldest first unless ``descending``.

    Attributes:
        subject_kind: exactly this, or empty for any.
        subject: exactly this, or empty for any.
        kinds: any of these.
        actor: by exactly this one, or empty for any.
        since_s: only lines of that time or later, or None.
        until_s: only lines before that time, or None.
        after_id: only lines with a larger event id, so that a stream can be resumed.
        before_id: only lines with a smaller event id, or None.
        without: kinds of subjects to leave out.
        descending: newest first.
        limit: the most lines.
    """

    subject_kind: str = ""
    subject: str = ""
    kinds: tuple[str, ...] = ()
    actor: str = ""
    since_s: float | None = None
    until_s: float | None = None
    after_id: int = 0
    before_id: int | None = None
    without: tuple[str, ...] = ()
    descending: bool = False
    limit: int = 100

    def __post_init__(self) -> None:
        """Refuse a limit outside 1 to ``MAX_LIMIT``."""
        check_limit(self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptQuery:
    """A page of leases, newest first.

    Attributes:
        since_s: only leases that held workers after that time, or None.
        until_s: only leases that began before that time, or None.
        nodes: only leases with workers of any of these nodes; empty for all.
        projects: only leases of jobs of any of these projects; empty for all.
        before_id: only smaller lease ids, or None.
        limit: the most leases.
    """

    since_s: float | None = None
    until_s: float | None = None
    nodes: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    before_id: int | None = None
    limit: int = 100

    def __post_init__(self) -> None:
        """Refuse a limit outside 1 to ``MAX_LIMIT``."""
        check_limit(self.limit)


def check_limit(limit: int) -> None:
    """Refuse a number of rows outside 1 to ``MAX_LIMIT``.

    Raises:
        InputError: it is outside.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InputError(f"limit is {limit}; give a number from 1 to {MAX_LIMIT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The last row of a page: its sort key and its number."""

    value: float | str
    number: int


def make_cursor(query: JobQuery, row: JobRow) -> str:
    """Return the cursor of the page that begins after ``row``."""
    value = getattr(row, SORT_KEYS[query.order])
    text = json.dumps([query.order.value, value, row.number], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


def read_cursor(query: JobQuery) -> Position | None:
    """Return the position of the row before the query's page; None for the first page.

    Raises:
        InputError: the cursor is damaged, or belongs to another order.
    """
    if query.cursor is None:
        return None
    try:
        order, value, number = json.loads(base64.urlsafe_b64decode(query.cursor.encode("ascii")))
    except (ValueError, TypeError, binascii.Error) as error:
        raise _bad_cursor(query) from error
    wanted = (str,) if query.order is JobOrder.NAME else (int, float)
    if order != query.order.value or type(value) not in wanted or type(number) is not int:
        raise _bad_cursor(query)
    return Position(value=value, number=number)


def _bad_cursor(query: JobQuery) -> InputError:
    return InputError(
        f"cursor {query.cursor!r} does not belong to a list sorted by {query.order}; "
        "give next_cursor of the page before, with the same order, or none"
    )
