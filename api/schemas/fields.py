"""Kinds of fields with their limits; every text refuses control characters."""

import functools
import json
import shlex
from typing import Annotated, Any

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from api.patterns import (
    ABSOLUTE_PATH,
    CLIENT_ID,
    DIGEST,
    IMAGE,
    JOB_ID,
    LABEL_KEY,
    MONTH,
    NAME,
    PRINTABLE,
    PRINTABLE_LINES,
    SUBJECT,
    VARIABLE,
    WORKER_TYPE,
)
from planner.plans.document import write_model
from scheduler.domain.jobs.expressions import LONGEST, progress_expression
from scheduler.domain.jobs.fields import LATEST_S, LONGEST_S, Number, Word
from scheduler.domain.jobs.job import LARGEST_GANG
from scheduler.domain.jobs.spec import LONGEST_TYPE
from scheduler.errors import InputError
from scheduler.protocol.bounds import plain_json

#: Levels of lists and objects in a model.
_DEEPEST_MODEL = 32
#: So many characters of a command in one text are split for the example in the message.
_SHOWN_COMMAND = 200


class Form(BaseModel):
    """A request's body: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


def _text(longest: int, pattern: str = PRINTABLE, *, shortest: int = 1) -> Any:
    return StringConstraints(min_length=shortest, max_length=longest, pattern=pattern)


def _no_parent(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError("must not contain '..'")
    return path


@functools.lru_cache(maxsize=64)  # the jobs of a request share few
def _fault(pattern: str) -> str:
    try:
        progress_expression(pattern)
    except InputError as error:
        return str(error)
    return ""


def _regex(pattern: str) -> str:
    if fault := _fault(pattern):
        raise ValueError(fault)
    return pattern


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _distinct(counts: list[int]) -> list[int]:
    if len(set(counts)) < len(counts):
        raise ValueError("names a count twice")
    return counts


def _own_variable(name: str) -> str:
    if name.startswith("LEASEHOLD_"):
        raise ValueError(f"'{name}': names that begin with LEASEHOLD_ are set by the agent")
    return name


Name = Annotated[str, _text(128, NAME)]
ProjectName = Annotated[str, _text(63, NAME)]
NodeName = Annotated[str, _text(253, NAME)]
Subject = Annotated[str, _text(128, SUBJECT)]
JobId = Annotated[str, _text(160, JOB_ID)]
TokenId = Annotated[str, _text(64, NAME)]
JobType = Annotated[str, _text(LONGEST_TYPE)]
WorkerType = Annotated[str, _text(64, WORKER_TYPE)]
ClientId = Annotated[str, _text(200, CLIENT_ID)]
Reason = Annotated[str, _text(500, shortest=0)]
Line = Annotated[str, _text(200)]
Month = Annotated[str, _text(7, MONTH)]
Argument = Annotated[str, _text(131_071, PRINTABLE_LINES, shortest=0)]
Variable = Annotated[str, _text(128, VARIABLE), AfterValidator(_own_variable)]
LabelKey = Annotated[str, _text(63, LABEL_KEY)]
LabelValue = Annotated[str, _text(255, shortest=0)]
AbsolutePath = Annotated[str, _text(4096, ABSOLUTE_PATH), AfterValidator(_no_parent)]
AnyPath = Annotated[str, _text(4096), AfterValidator(_no_parent)]
Regex = Annotated[str, _text(LONGEST), AfterValidator(_regex)]
Digest = Annotated[str, _text(64, DIGEST)]
Image = Annotated[str, _text(500, IMAGE)]

Flag = Annotated[bool, Field(strict=True)]
Workers = Annotated[int, Field(strict=True, ge=1, le=LARGEST_GANG)]
Samples = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Rate = Annotated[float, Field(strict=True, gt=0, le=1e12)]
RestartSeconds = Annotated[float, Field(strict=True, ge=0, le=LONGEST_S)]
Weight = Annotated[float, Field(strict=True, ge=1e-6, le=1e6)]
SomeSeconds = Annotated[float, Field(strict=True, gt=0, le=LONGEST_S)]
Moment = Annotated[float, Field(strict=True, gt=0, le=LATEST_S)]
#: In a query everything is text.
QueryMoment = Annotated[float, Field(ge=0, le=LATEST_S, allow_inf_nan=False)]
_COUNT = {"type": "integer", "minimum": 1, "maximum": LARGEST_GANG}
_COUNTS = {"type": "array", "items": _COUNT, "minItems": 1, "maxItems": 64, "uniqueItems": True}
WorkerCounts = Annotated[
    list[Workers],
    Field(min_length=1, max_length=64),
    BeforeValidator(_listed),
    AfterValidator(_distinct),
    WithJsonSchema({"anyOf": [_COUNT, _COUNTS]}),
]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]


def _no_shell_line(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value[:_SHOWN_COMMAND])
    except ValueError:  # a quote without its end
        words = []
    shown = json.dumps(words or ["python", "train.py"], ensure_ascii=False)
    raise ValueError(f"give a list of the program and its arguments, such as {shown}")


Command = Annotated[
    list[Argument], Field(min_length=1, max_length=1000), BeforeValidator(_no_shell_line)
]


def _model(value: Any) -> str:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            problem = (
                f"must be an object with config or layers, and batch; this is no JSON: {error}"
            )
            raise ValueError(problem) from None
    if not plain_json(value, _DEEPEST_MODEL):
        raise ValueError(
            f"may hold finite numbers of 64 bits, texts without NUL or halves of characters, and "
            f"{_DEEPEST_MODEL} levels of lists and objects"
        )
    try:
        return write_model(value, place="the model")
    except InputError as error:
        raise ValueError(str(error)) from None


#: An object with ``config`` or ``layers``, and the step; or its JSON as a text.
Model = Annotated[str, BeforeValidator(_model), WithJsonSchema({"type": "object"})]

_VARIABLES = Annotated[dict[Variable, Argument], Field(max_length=200)]

#: What a field of a job that is no number may be.
_WORDS: dict[Word, Any] = {
    Word.NAME: Name,
    Word.PROJECT: ProjectName,
    Word.SUBJECT: Subject,
    Word.JOB_TYPE: JobType,
    Word.IMAGE: Image,
    Word.LINE: Line,
    Word.PATH: AbsolutePath,
    Word.ANY_PATH: AnyPath,
    Word.DIGEST: Digest,
    Word.EXPRESSION: Regex,
    Word.FLAG: Flag,
    Word.COMMAND: Command,
    Word.VARIABLES: _VARIABLES,
    Word.SECRETS: _VARIABLES,
    Word.LABELS: Labels,
    Word.JOB_IDS: Annotated[list[JobId], Field(max_length=1000)],
    Word.WORKER_COUNTS: WorkerCounts,
    Word.WORKER_TYPES: Annotated[list[WorkerType], Field(max_length=64)],
    Word.RATES: Annotated[dict[WorkerType, Rate], Field(max_length=64)],
    Word.RESTARTS: Annotated[dict[WorkerType, RestartSeconds], Field(max_length=256)],
    Word.MOMENT: Moment,
    Word.MODEL: Model,
}


def type_of(kind: Word | Number) -> Any:
    """Return the type of a field of requests, with its limits.

    Raises:
        KeyError: it has a form of its own.
    """
    if isinstance(kind, Number):
        limits: Any = kind.bounds
        return Annotated[int if kind.whole else float, Field(strict=True, **limits)]
    return _WORDS[kind]
