"""The fields of a job's specification, each declared once for all interfaces.

The schema of requests (``api``), the readers of files and the command line (``leasehold.cli``), the
conversion between them and the reference pages follow from what stands here. See ``JobSpec``.
"""

from __future__ import annotations

import enum
from dataclasses import MISSING, Field, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Longest time that can be given, some 30 years, and the latest date, in the year 5138.
LONGEST_S, LATEST_S = 1e9, 1e11


class Word(enum.Enum):
    """What a value that is no number may be. ``api.schemas.fields`` has the limits of each."""

    NAME = enum.auto()
    PROJECT = enum.auto()
    SUBJECT = enum.auto()  #: a person or a program
    JOB_TYPE = enum.auto()
    IMAGE = enum.auto()
    LINE = enum.auto()  #: any text without control characters
    PATH = enum.auto()  #: absolute; on the command line relative to the current folder
    ANY_PATH = enum.auto()
    DIGEST = enum.auto()  #: SHA-256, hexadecimal
    EXPRESSION = enum.auto()  #: a regular one
    FLAG = enum.auto()
    COMMAND = enum.auto()  #: program and arguments
    VARIABLES = enum.auto()  #: name -> value
    SECRETS = enum.auto()  #: name -> value that is never shown
    LABELS = enum.auto()  #: key -> value
    JOB_IDS = enum.auto()
    WORKER_COUNTS = enum.auto()
    WORKER_TYPES = enum.auto()
    RATES = enum.auto()  #: worker type -> steps/s
    RESTARTS = enum.auto()  #: worker type, or type:count -> seconds
    MOMENT = enum.auto()  #: seconds since the Unix epoch; people say "2h" or a date, too
    PODS = enum.auto()  #: what a job says about its pods
    BATCH = enum.auto()  #: the range for a batch that the job chooses
    MODEL = enum.auto()  #: a model and its step


class Written(enum.Enum):
    """How files and the command line write a number."""

    PLAIN = enum.auto()
    SPAN = enum.auto()  #: of seconds: ``90m``; the field's name ends with ``_s``
    SIZE = enum.auto()  #: of bytes: ``8GiB``; the field's name ends with ``_bytes``


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number within bounds.

    Attributes:
        whole: whether it has no fraction.
        ge: smallest value; gt: value that it must exceed; le: largest value; or None.
        written: how people write it.
    """

    whole: bool = False
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    written: Written = Written.PLAIN

    @property
    def bounds(self) -> Mapping[str, float]:
        """The bounds that there are, by name."""
        found = {"ge": self.ge, "gt": self.gt, "le": self.le}
        return {name: bound for name, bound in found.items() if bound is not None}


#: Spans of time, in seconds: more than none; any; and within an hour.
SOME_SECONDS = Number(gt=0, le=LONGEST_S, written=Written.SPAN)
SECONDS = Number(ge=0, le=LONGEST_S, written=Written.SPAN)
SHORT_SECONDS = Number(ge=0, le=3600, written=Written.SPAN)
#: How often something is tried again.
RETRIES = Number(whole=True, ge=0, le=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The option of ``leasehold submit`` that gives a field.

    Attributes:
        help: one sentence.
        flag: or empty: the field's name, with ``--no-`` if it switches something off.
        short: a letter with its dash, or empty.
        metavar: what stands for the value, or empty.
        page: what the reference says of it; empty: the sentence of the help.
        default: what holds without it, for the reference.
    """

    help: str
    flag: str = ""
    short: str = ""
    metavar: str = ""
    page: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A field that people give.

    Attributes:
        attribute: of the specification.
        name: in requests and files.
        kind: the type of its values.
        default: of the specification; ``MISSING`` if it is needed.
        help: a few words.
        page: what the reference adds to them.
        usual: the value if it is left out, for the reference; empty: the default.
        by_caller: whether the value, if it is left out, depends on the caller.
        option: of the command line; None: it is given in files only.
    """

    attribute: str
    name: str
    kind: Word | Number
    default: Any
    help: str
    page: str = ""
    usual: str = ""
    by_caller: bool = False
    option: Option | None = None

    @property
    def needed(self) -> bool:
        """Whether every job has to name it."""
        return self.default is MISSING

    @property
    def short_name(self) -> str:
        """Its name in files that write the value as people do, or empty."""
        if isinstance(self.kind, Number) and self.kind.written is Written.SIZE:
            return self.name.removesuffix("_bytes")
        span = isinstance(self.kind, Number) and self.kind.written is Written.SPAN
        return self.name.removesuffix("_s") if span or self.kind is Word.MOMENT else ""

    @property
    def flag(self) -> str:
        """Its option; empty if there is no option."""
        if self.option is None:
            return ""
        switch = "no-" if self.kind is Word.FLAG and self.default is True else ""
        words = (self.short_name or self.name).replace("_", "-")
        return self.option.flag or f"--{switch}{words}"


def asked(
    kind: Word | Number,
    help: str,  # noqa: A002 - its name elsewhere, too
    *,
    default: Any = MISSING,
    name: str = "",
    page: str = "",
    usual: str = "",
    by_caller: bool = False,
    option: Option | None = None,
) -> Any:
    """Declare a field that people give; see ``Asked``.

    Returns:
        A dataclass field, typed ``Any`` so that ``weight: float = asked(...)`` checks.
    """
    metadata = {
        "name": name,
        "kind": kind,
        "help": help,
        "page": page,
        "usual": usual,
        "by_caller": by_caller,
        "option": option,
    }
    if isinstance(default, dict):  # dataclasses take no unhashable default
        return field(
            default_factory=lambda: MappingProxyType(default),
            metadata=metadata,
            repr=kind is not Word.SECRETS,
        )
    return field(default=default, metadata=metadata)


def asked_of(spec: type[Any]) -> tuple[Asked, ...]:
    """Return the fields of a dataclass that people give, in its order."""
    return tuple(_asked(one) for one in fields(spec) if "kind" in one.metadata)


def _asked(declared: Field[Any]) -> Asked:
    default = declared.default
    if declared.default_factory is not MISSING:
        default = declared.default_factory()
    told = dict(declared.metadata)
    name = told.pop("name") or declared.name
    return Asked(attribute=declared.name, name=name, default=default, **told)
