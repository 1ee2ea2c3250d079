"""Exit codes that scripts may rely on."""

from __future__ import annotations

from typing import Final

from scheduler.errors import (
    AdmissionError,
    AnswerError,
    ConflictError,
    NotFoundError,
    NotPermittedError,
    PolicyFaultError,
    SolveError,
    UnreachableError,
)

#: A policy failed, or some of several runs, jobs or requests failed; they are named, and the
#: results of the others are there.
FAILED: Final = 1
#: An input or an option cannot be used.
INPUT: Final = 2
#: No scheduler answers, or it is too busy or not ready for longer than one was willing to wait.
UNREACHABLE: Final = 3
#: The token is missing, unknown or expired, or its role or projects do not allow it.
NOT_PERMITTED: Final = 4
#: There is no job, node, policy or token of that name.
NOT_FOUND: Final = 5
#: Refused as things stand: a job that can never run, a job that has ended, a name that is taken.
REFUSED: Final = 6
#: ``run``: the job was stopped by its time limit; that of timeout(1).
TIME_LIMIT: Final = 124
#: ``run``: the job failed and has no exit code, as where its program could not be started.
NO_CODE: Final = 125
#: ``run``: the job was cancelled; that of a process that SIGTERM ends.
CANCELLED: Final = 143
#: Interrupted from the keyboard.
INTERRUPTED: Final = 130

_CODES: Final = (
    (UnreachableError, UNREACHABLE),
    (NotPermittedError, NOT_PERMITTED),
    (NotFoundError, NOT_FOUND),
    (AdmissionError, REFUSED),
    (ConflictError, REFUSED),
    (AnswerError, FAILED),
    (PolicyFaultError, FAILED),
    (SolveError, FAILED),
)


def code_of(error: BaseException) -> int:
    """Return the exit code for a ``LeaseholdError``."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), INPUT)
