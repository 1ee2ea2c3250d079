"""Commands that run beside jobs, as they are asked for and answered."""

from typing import Annotated, Literal, Self

from pydantic import Base64Bytes, BaseModel, Field, model_validator

from api.schemas.fields import Argument, Form, NodeName
from scheduler.domain.jobs.job import LARGEST_GANG

#: Longest life of a command: a day; most bytes that it is given to read.
LONGEST_S, MOST_STDIN = 86_400.0, 256 * 1024
#: Most characters of a command: it stands in the answer to an agent.
MOST_COMMAND = 131_072


class ExecIn(Form):
    """A command to run inside a running job."""

    command: Annotated[list[Argument], Field(min_length=1, max_length=1000)] = Field(
        description="with its arguments; looked for on the job's PATH"
    )
    stdin: Annotated[Base64Bytes, Field(max_length=MOST_STDIN)] = Field(
        b"", description="its input, in base64; 256 KiB at most"
    )
    rank: Annotated[int, Field(strict=True, ge=0, lt=LARGEST_GANG)] | None = Field(
        None, description="beside which process of a gang; the first one by default"
    )
    node: NodeName | None = Field(None, description="the same by the name of its node")
    timeout_s: Annotated[float, Field(strict=True, gt=0, le=LONGEST_S)] = Field(
        3600.0, description="after so long it is ended"
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.rank is not None and self.node is not None:
            raise ValueError("rank and node are both given; give one of them")
        if sum(map(len, self.command)) > MOST_COMMAND:
            raise ValueError(f"the command is longer than {MOST_COMMAND} characters")
        return self


class ExecOut(BaseModel):
    """A command that has been ordered."""

    exec_id: str
    node: str


class ExecPiece(BaseModel):
    """Output of a command; `data` in base64."""

    stream: Literal["out", "err"]
    data: str


class ExecOutputOut(BaseModel):
    """What a command has printed since, and how it ended.

    `next` is what to ask for `after` next time. Where `done`, `exit_code` is the command's own, or
    null with the reason in `problem`.
    """

    pieces: list[ExecPiece]
    next: int
    done: bool
    exit_code: int | None
    problem: str
