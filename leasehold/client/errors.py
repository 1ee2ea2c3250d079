"""Errors of the client.

ClientError              a request was refused
|- UnreachableError      no scheduler answers, or the connection broke
`- NoSchedulerError      the server that answered is not a scheduler
ValueError
`- UnsendableError       a request cannot be written down
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Why no scheduler was reached: ``plain`` is a server without https, ``name`` an unknown host,
#: ``leader`` a leader that a standby names and that does not answer.
Why: TypeAlias = Literal["nobody", "certificate", "plain", "name", "silence", "broken", "leader"]


class ClientError(Exception):
    """A request was refused, or no scheduler answered.

    Args:
        message: description of the error.
        status: of HTTP; 0 if no server answered.
        problem: the scheduler's problem document: ``type``, ``detail``, ``errors`` by field.
        retry_after_s: wait that the scheduler asks for before a retry.
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
    """No scheduler answers, or the connection broke.

    Args:
        message: description of the error.
        why: the kind of failure.
    """

    def __init__(self, message: str, *, why: Why) -> None:
        super().__init__(message)
        self.why = why


class NoSchedulerError(ClientError):
    """The server that answered is not a scheduler: its answer makes no sense."""


class UnsendableError(ValueError):
    """A request cannot be written down: a number that is not finite, text that is not Unicode.

    Args:
        message: description of the fault.
        field: path of the faulty field, as in ``throughputs.0.steps_per_s``, or empty.
        problem: the fault, in words that follow the field's name.
    """

    def __init__(self, message: str, *, field: str = "", problem: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.problem = problem
