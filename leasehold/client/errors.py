"""What a client raises.

ClientError              a request was refused
|- UnreachableError      nobody answers, or the connection broke
`- NoSchedulerError      what answered is no scheduler
ValueError
`- UnsendableError       a request cannot be written down
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Why nobody was reached: ``plain`` is a server that knows no https, ``name`` a host that nobody
#: knows, ``leader`` one that a standby names and that does not answer.
Why: TypeAlias = Literal["nobody", "certificate", "plain", "name", "silence", "broken", "leader"]


class ClientError(Exception):
    """A request was refused, or nobody answered.

    Args:
        message: what happened.
        status: of HTTP; 0 where nobody answered.
        problem: the scheduler's own words: ``type``, ``detail``, ``errors`` by field.
        retry_after_s: how long the scheduler asks to be left alone.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        problem: Mapping[str, Any] | None = None,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = dict(problem or {})
        self.retry_after_s = retry_after_s


class UnreachableError(ClientError):
    """Nobody answers, or the connection broke.

    Args:
        message: what happened.
        why: of what kind that is.
    """

    def __init__(self, message: str, *, why: Why) -> None:
        super().__init__(message)
        self.why = why


class NoSchedulerError(ClientError):
    """What answered is no scheduler: its answer makes no sense."""


class UnsendableError(ValueError):
    """A request cannot be written down: a number that is not finite, text that is no Unicode.

    Args:
        message: what is wrong.
        field: path of the field that is to blame, as in ``throughputs.0.steps_per_s``, or empty.
        problem: what is wrong with it, to stand behind its name.
    """

    def __init__(self, message: str, *, field: str = "", problem: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.problem = problem
