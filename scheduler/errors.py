"""The one exception tree of the project.

    LeaseholdError
    |- InputError            a file, option or request that cannot be used
    |  |- TraceError         a trace or table: names file, line, field and value
    |  |- ClusterError       a cluster spec or file
    |  |- ParameterError     a policy parameter or setting
    |  `- ConfigError        the daemon's configuration: lists everything that is wrong
    |- AdmissionError        a job that can never run
    |- UnknownPolicyError    no policy of that name; lists the known ones
    |- CodecError            stored data that this release cannot read, or a value that has no form
    |- StoreError            the store refused a request or failed at it
    |  |- SequenceError      a journal entry is not the next one
    |  |- StaleLeaderError   another process leads, or no process
    |  |- ConflictError      a unique name or key is taken
    |  |- UnstorableError    data that no store can hold: a number too large, a text with NUL
    |  |- StoreVersionError  the database belongs to a newer release, or was never set up
    |  `- StoreUnavailableError  the database cannot be reached or is locked; try again
    |     |- StoreFullError        it cannot be written: its disk is full
    |     `- OutcomeUnknownError   it is not known yet whether the request is stored
    |- NotFoundError         no job, node, project or token of that name
    |- TurnFailedError       a turn of the leader's driver failed; its state is loaded again
    |- NotLeadingError       this process does not lead; names the leader
    |   |- StartingError     it is about to, or to stand by; says what takes its time
    |- UnreachableError      no scheduler answers, or it is too busy or not ready for too long
    |- NotPermittedError     the token is missing or invalid, or does not allow it
    |- AnswerError           the scheduler failed at a request, or its answer makes no sense
    |- SolveError            no solver returned an answer that passed its checks
    |  `- SupersededError    a newer question took the place of one that waited
    |- PolicyFaultError     a policy raised something other than these errors
    |- MissingExtraError     a command needs a distribution or an extra that is not installed
    |- ShadowedPackageError  another distribution hides one of our packages
    |- MixedVersionsError    our two distributions are of different versions
    `- InvariantError        the engine's own state is inconsistent (a bug)

A message says what happened, the value, and what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


class LeaseholdError(Exception):
    """Base of every error that the project raises on purpose."""


class InputError(LeaseholdError):
    """A file, option or request cannot be used as it is."""


class TraceError(InputError):
    """A trace or a throughput table is malformed.

    Args:
        problem: the problem, and the remedy.
        path: the file.
        line: 1-based line, or None if the whole file is meant.
        field: the field's name, or None if the whole line is meant.
        value: the offending value as read.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str,
        line: int | None = None,
        field: str | None = None,
        value: object = None,
    ) -> None:
        where = path if line is None else f"{path}:{line}"
        what = "" if field is None else f" field '{field}'"
        shown = "" if value is None else f" value {value!r}"
        super().__init__(f"{where}:{what}{shown}: {problem}".replace("::", ":"))
        self.path = path
        self.line = line
        self.field = field
        self.value = value


class ClusterError(InputError):
    """A cluster spec or cluster file is malformed."""


class ParameterError(InputError):
    """A policy parameter or a setting has a wrong name, type or range."""


class ConfigError(InputError):
    """The daemon's configuration cannot be used.

    Args:
        problems: (n,) each names the file, variable or flag, the setting and the remedy.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
            return
        super().__init__(f"the configuration has {len(self.problems)} problems:")
        for problem in self.problems:
            self.add_note(problem)


class AdmissionError(LeaseholdError):
    """A job can never run on this cluster."""


class UnknownPolicyError(InputError):
    """No policy has the requested name."""


class CodecError(LeaseholdError):
    """Stored data that this release cannot read, or a value that has no stored form."""


class StoreError(LeaseholdError):
    """The store refused a request or failed at it; nothing of the request was done."""


class SequenceError(StoreError):
    """A journal entry is not the next one: another process has written, or one was lost."""


class StaleLeaderError(StoreError):
    """The fencing token is not the leader's: another process leads now, or no process."""


class WrongClockError(LeaseholdError):
    """This machine's clock is far from the stored time, or from the database's clock."""


class ConflictError(StoreError):
    """A name or key that must be unique is taken."""


class UnstorableError(StoreError):
    """Data has no stored form; nothing was stored, and trying again would not help."""


class StoreVersionError(StoreError):
    """The database's schema is not the one of this release."""


class StoreUnavailableError(StoreError):
    """The database cannot be reached or is locked; the same call may succeed later.

    It is unknown whether an interrupted commit took place: compare ``Store.position``.
    """


class StoreFullError(StoreUnavailableError):
    """The database cannot be written, because its disk is full; reading goes on."""


class OutcomeUnknownError(StoreUnavailableError):
    """Work is in an entry that the database does not take, and may be stored yet.

    Args:
        failure: why the database does not take it.
    """

    def __init__(self, failure: StoreUnavailableError) -> None:
        super().__init__(
            f"it is not known yet whether this was stored; send it again under the same client "
            f"id: {failure}"
        )
        self.failure = failure


class NotFoundError(LeaseholdError):
    """There is no job, node, project or token of that name."""


class TurnFailedError(LeaseholdError):
    """A turn of the driver failed when the state in memory had changed: it is loaded again."""


class NotLeadingError(LeaseholdError):
    """This process does not lead and cannot write.

    Args:
        leader_address: the leader's address; empty if unknown.
    """

    def __init__(self, leader_address: str = "") -> None:
        where = f"send it to {leader_address}" if leader_address else "try again in some seconds"
        super().__init__(f"this scheduler is a standby and does not schedule; {where}")
        self.leader_address = leader_address


class StartingError(NotLeadingError):
    """This process has not started yet.

    Args:
        problem: its fault.
    """

    def __init__(self, problem: str) -> None:
        LeaseholdError.__init__(self, f"this scheduler is {problem}; try again in some seconds")
        self.leader_address = ""


class UnreachableError(LeaseholdError):
    """No scheduler answers, or it is too busy or not ready for longer than the caller waits.

    Attributes:
        retry_after_s: how long it asks to be left alone.
    """

    retry_after_s: float = 0.0


class NotPermittedError(LeaseholdError):
    """The token is missing, unknown or expired, or its role or projects do not allow this."""


class AnswerError(LeaseholdError):
    """The scheduler failed at a request, or its answer cannot be understood."""


class SolveError(LeaseholdError):
    """No solver returned an answer that passed its checks."""


class SupersededError(SolveError):
    """A question was not answered, because a newer one has taken its place."""


class PolicyFaultError(LeaseholdError):
    """A policy raised something that is no error of ours: a fault of its code."""

    @classmethod
    def of(cls, policy: str, error: BaseException) -> Self:
        """Return the error for what a policy of that name raised."""
        said = (
            f"ended the program: sys.exit({error.code!r})"
            if isinstance(error, SystemExit)
            else f"failed with {type(error).__name__}: {error}"
        )
        return cls(f"policy '{policy}' {said}; this is a fault of the policy")


class MissingExtraError(LeaseholdError):
    """A command needs a distribution or an extra that is not installed."""


class ShadowedPackageError(LeaseholdError):
    """Another installed distribution shadows one of the project's packages."""


class MixedVersionsError(LeaseholdError):
    """The project's two distributions are installed in different versions."""


class InvariantError(LeaseholdError):
    """The engine's state contradicts one of its invariants; this is a bug."""
