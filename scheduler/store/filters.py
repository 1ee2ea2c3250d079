"""Job filters, each declared once and used by the stores, the API and the command line.

Needs no database and no numpy, since the command line imports it too.
"""

from __future__ import annotations

import enum  # noqa: TC003  the dataclass names it
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.jobs.fields import Option, Word
from scheduler.domain.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter that compares one column of a job.

    Attributes:
        attribute: of ``JobFilter``.
        name: in requests, and the column of ``JobRow``.
        kind: the kind of a value.
        most: the most values, any of which passes; 0: one value, which must be equal.
        help: a few words about it in a list of jobs.
        selects: the same for selecting jobs to act on; empty: it cannot select them.
        option: of ``leasehold jobs``.
        arrays: whether the name of an array passes its elements, which are called ``NAME[i]``.
    """

    attribute: str
    name: str
    kind: Word | type[enum.StrEnum]
    most: int
    help: str
    selects: str
    option: Option
    arrays: bool = False

    @property
    def flag(self) -> str:
        """Its option."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"


def _any_of(
    name: str,
    kind: Word | type[enum.StrEnum],
    option: Option,
    *,
    most: int = 100,
    selects: str = "any of these",
    arrays: bool = False,
) -> Any:
    """Declare a filter that passes any of some values; it can also select jobs to act on."""
    told = {"name": name, "kind": kind, "most": most, "help": "any of these", "option": option}
    return field(default=(), metadata=told | {"selects": selects, "arrays": arrays})


def _exactly(name: str, kind: Word, help: str, option: Option) -> Any:  # noqa: A002 - as above
    """Declare a filter that passes one value; it can also select jobs to act on."""
    told = {"name": name, "kind": kind, "most": 0, "help": help, "option": option}
    return field(default="", metadata=told | {"selects": "exactly this"})


def array_prefix(array: str) -> str:
    """Return the prefix of the names of an array's elements."""
    return f"{array}["


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """A selection of jobs. An empty field lets all pass; all fields must match.

    Fields declared by ``_any_of`` and ``_exactly`` compare a column of ``JobRow``. The stores, the
    REST interface (lists and selectors), ``leasehold jobs`` and the reference pages use them.

    Attributes:
        labels: all of these.
        called: the name of the job, or of the array that it is an element of, or the beginning of
            its id.
    """

    statuses: tuple[JobStatus, ...] = _any_of(
        "status",
        JobStatus,
        Option(
            help="Only jobs in one of these.",
            metavar="A[,B...]",
            page="only jobs that are " + ", ".join(f"`{status}`" for status in JobStatus),
        ),
        most=16,
        selects="any of these; none: jobs that have not ended",
    )
    projects: tuple[str, ...] = _any_of(
        "project",
        Word.PROJECT,
        Option(help="Only jobs of these.", short="-p", metavar="A[,B...]"),
    )
    job_types: tuple[str, ...] = _any_of(
        "job_type", Word.JOB_TYPE, Option(help="Only these types.", metavar="A[,B...]")
    )
    names: tuple[str, ...] = _any_of(
        "name",
        Word.NAME,
        Option(help="Only jobs, or arrays, of these names.", metavar="A[,B...]"),
        selects="any of these; that of an array means its elements",
        arrays=True,
    )
    owner: str = _exactly(
        "owner", Word.SUBJECT, "the job's owner", Option(help="Only this one's jobs.")
    )
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    called: str = ""


#: The filters that compare a column, in display order.
FILTERS: Final[tuple[Filter, ...]] = tuple(
    Filter(attribute=one.name, **one.metadata) for one in fields(JobFilter) if one.metadata
)
