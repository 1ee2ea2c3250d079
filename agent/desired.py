"""The values of the level-triggered protocol between the scheduler and an agent.

Downwards: the set of leases that the agent is to hold, with a revision. Upwards: what there is.
Both are states and not orders, so a message that is lost is made good by the next, a repeated one
changes nothing, and one that is overtaken is ignored.
"""

from __future__ import annotations

import enum
import re
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from agent.reading import Reader
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: From SIGKILL to a lease's deadline, as agents keep it unless they are set otherwise.
MARGIN_S = 1.0
#: What a node may be called: a part of a path and of a file's name.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class LeaseState(enum.StrEnum):
    """Where the processes under a lease are."""

    STARTING = "starting"  #: being launched
    RUNNING = "running"
    STOPPING = "stopping"  #: told to leave
    ENDED = "ended"  #: no process is left


class LeaseEnd(enum.StrEnum):
    """Why the processes under a lease ended."""

    COMPLETED = "completed"  #: the job has done all its steps
    RELEASED = "released"  #: preempted: by notice, at the deadline, or it left by itself
    FAILED = "failed"  #: the job itself failed
    LOST = "lost"  #: the processes vanished: reboot, a worker gone, a supervisor killed
    OOM = "oom"  #: out of memory, on the host or on the accelerator
    CANCELLED = "cancelled"  #: the lease went out of the desired set while it ran


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredLease:
    """A lease that the agent is to hold, with everything that a launch needs.

    Times are durations as of the scheduler's answer: the two clocks share no origin.

    Attributes:
        lease_id: running number, never reused.
        attempt: 1 for the job's first lease, and so on.
        token: fencing token; grows with every lease.
        job_id: the job's name.
        command: (n,) program and arguments; never given to a shell.
        env: the job's own environment variables.
        working_dir: absolute path; empty for a folder of the job's own on this node.
        checkpoint_dir: where the job keeps its state; None if it keeps none.
        workers: (n,) local indices of the workers held.
        rank: global rank of the first process on this node.
        world_size: processes of the whole gang, over all nodes.
        local_ranks: (n,) local rank of each process to start here; its RANK is ``rank`` plus its
            position.
        master_addr: where rank 0 runs.
        master_port: the port that rank 0 may listen on.
        total_steps: steps of the whole job; None if nobody knows.
        steps_done: checkpointed steps as the scheduler knows them.
        remaining_s: until the deadline.
        notice_in_s: until the job is to be told that the lease will end; None while no end is
            announced.
        notice_s: how long before SIGTERM the job is told when the lease is not renewed.
        grace_s: from SIGTERM to SIGKILL.
        progress_regex: searched in each line of output; group ``steps`` (or 1) is the number of
            steps done, group ``saved`` those that are checkpointed.
        progress_file: a file whose last number is the count of checkpointed steps, relative to
            the working directory.
        memory_bytes: limit of host memory for its processes on this node, or None.
        cpus: limit of processor cores for the same, or None.
        image: container image; empty where it runs as local processes.
        gang: (n,) workers held on each node of the gang, in the order of ranks; empty where the
            scheduler does not tell.
        node_rank: position of this node in ``gang``.
        kubernetes: what the job says about its pods, as plain JSON values; see ``agent.pods``.
        project: whose quota it falls under; empty where the scheduler does not tell.
        owner: who submitted it, likewise.
    """

    lease_id: int
    attempt: int
    token: int
    job_id: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    working_dir: str = "/"
    checkpoint_dir: str | None = None
    workers: tuple[int, ...]
    rank: int = 0
    world_size: int = 1
    local_ranks: tuple[int, ...] = (0,)
    master_addr: str = "127.0.0.1"
    master_port: int = 29500
    total_steps: int | None = None
    steps_done: int = 0
    remaining_s: float
    notice_in_s: float | None = None
    notice_s: float = 5.0
    grace_s: float = 5.0
    progress_regex: str | None = None
    progress_file: str | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    image: str = ""
    gang: tuple[int, ...] = ()
    node_rank: int = 0
    kubernetes: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    project: str = ""
    owner: str = ""

    def __post_init__(self) -> None:
        """Refuse what could not be launched."""
        if not self.command or not self.command[0]:
            raise InputError(f"lease {self.lease_id}: the command is empty; name a program")
        if not self.workers or len(set(self.workers)) < len(self.workers):
            raise InputError(
                f"lease {self.lease_id}: workers are {list(self.workers)}; "
                "at least one, each once, is needed"
            )
        if not self.local_ranks or self.rank + len(self.local_ranks) > self.world_size:
            raise InputError(
                f"lease {self.lease_id}: ranks {self.rank} to "
                f"{self.rank + len(self.local_ranks) - 1} do not fit a world of {self.world_size}"
            )
        if self.working_dir and not self.working_dir.startswith("/"):
            raise InputError(
                f"lease {self.lease_id}: working_dir is {self.working_dir!r}; "
                "it must be an absolute path, or empty for a folder of the job's own"
            )
        _check_regex(self.lease_id, self.progress_regex)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredImage:
    """An image that a node may soon need.

    Attributes:
        name: as a job gives it.
        pull_secrets: names of the Secrets with which it is pulled.
    """

    name: str
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """All leases that an agent is to hold.

    Attributes:
        term: fencing token of the scheduler that speaks; a new leader has a greater one.
        revision: grows within a term with every change.
        held_s: how long the scheduler held the request before it answered. The agent counts
            ``remaining_s`` from sending the request plus this, so that a slow answer can only
            make its deadline earlier than the scheduler's, never later.
        leases: ascending by id.
        images: that the node may soon need, the most urgent first; a hint.
    """

    term: int = 0
    revision: int
    held_s: float = 0.0
    leases: tuple[DesiredLease, ...]
    images: tuple[DesiredImage, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a lease that is listed twice."""
        ids = [lease.lease_id for lease in self.leases]
        if len(set(ids)) < len(ids):
            raise InputError(f"revision {self.revision} lists a lease twice: {sorted(ids)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReport:
    """What there is of one lease on this node.

    Attributes:
        lease_id: which.
        token: its fencing token.
        state: where its processes are.
        reason: why it ended; None before.
        exit_code: of the first process that failed, else 0; minus the number of the signal;
            None before the end or where nobody saw it.
        steps_done: checkpointed steps since the job's first start; never shrinks.
        steps_live: steps that the running processes have done, checkpointed or not.
        started_s: seconds since the Unix epoch; None before the start.
        message: what a person should know of the end, or of what keeps it from starting.
        reason_code: the same as one word such as Kubernetes uses (``ImagePullBackOff``), or empty.
        image_s: seconds that its image took, most of them the pull; None where nobody measures.
        launch_s: seconds from its being placed to the start of its first process, likewise; told
            once the launch is over, together with the next.
        ready_s: seconds from its being placed until it was ready; None where it ended before.
        devices: what the node calls the accelerators that it got, where the node tells: UUIDs, or
            indices that the agent has chosen.
    """

    lease_id: int
    token: int
    state: LeaseState
    reason: LeaseEnd | None = None
    exit_code: int | None = None
    steps_done: int = 0
    steps_live: int = 0
    started_s: float | None = None
    message: str = ""
    reason_code: str = ""
    image_s: float | None = None
    launch_s: float | None = None
    ready_s: float | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A worker as the agent sees it.

    Attributes:
        index: local index.
        worker_type: its hardware class.
        problem: why it cannot be used, empty if it can.
        sharing: how two jobs can hold it at once: ``visible`` (both see the device),
            ``time-slicing``, ``mps``, or ``exclusive`` where they cannot.
    """

    index: int
    worker_type: str
    problem: str = ""
    sharing: str = "visible"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """Everything that an agent knows, as absolute figures.

    Attributes:
        node: the node's name.
        incarnation: seconds since the Unix epoch at which the agent started.
        sequence: grows with every report of an incarnation; an older one is to be ignored.
        term: of the newest desired set that the agent has accepted.
        revision: of the same.
        workers: by local index.
        leases: ascending by id; an ended lease stays until it was delivered and has left the
            desired set.
        remarks: what a person should know of the node although its workers can be used.
    """

    node: str
    incarnation: float
    sequence: int
    term: int
    revision: int
    workers: tuple[WorkerReport, ...]
    leases: tuple[LeaseReport, ...]
    remarks: tuple[str, ...] = ()


def to_dict(value: Desired | DesiredLease | NodeReport) -> dict[str, object]:
    """Return a value as JSON's plain types."""
    if isinstance(value, DesiredLease):
        return _lease_to_dict(value)
    if isinstance(value, Desired):
        return {
            "term": value.term,
            "revision": value.revision,
            "held_s": value.held_s,
            "leases": [_lease_to_dict(lease) for lease in value.leases],
            "images": [asdict(image) for image in value.images],
        }
    return asdict(value)


def desired_from_dict(data: object) -> Desired:
    """Read a desired set.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    message = Reader.of(data)
    return Desired(
        term=message.integer("term"),
        revision=message.integer("revision"),
        held_s=message.number("held_s", at_least=0.0),
        leases=tuple(_lease(item) for item in message.objects("leases")),
        images=tuple(
            DesiredImage(
                name=item.text("name"), pull_secrets=item.optional("pull_secrets", item.texts) or ()
            )
            for item in message.optional("images", message.objects) or ()
        ),
    )


def lease_from_dict(data: object) -> DesiredLease:
    """Read one desired lease.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    return _lease(Reader.of(data))


def report_from_dict(data: object) -> NodeReport:
    """Read a node's report.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    message = Reader.of(data)
    return NodeReport(
        node=message.text("node"),
        incarnation=message.number("incarnation"),
        sequence=message.integer("sequence"),
        term=message.integer("term"),
        revision=message.integer("revision"),
        workers=tuple(
            WorkerReport(
                index=item.integer("index"),
                worker_type=item.text("worker_type"),
                problem=_words(item, "problem"),
                sharing=_words(item, "sharing") or "visible",
            )
            for item in message.objects("workers")
        ),
        leases=tuple(_lease_report(item) for item in message.objects("leases")),
        remarks=message.optional("remarks", message.texts) or (),
    )


def _lease_to_dict(lease: DesiredLease) -> dict[str, object]:
    names = (
        name for name in DesiredLease.__dataclass_fields__ if name not in {"env", "kubernetes"}
    )
    plain: dict[str, object] = {name: getattr(lease, name) for name in names}
    for name in ("command", "workers", "local_ranks", "gang"):
        plain[name] = list(getattr(lease, name))
    return plain | {"env": dict(lease.env), "kubernetes": dict(lease.kubernetes)}


def _lease(item: Reader) -> DesiredLease:
    return DesiredLease(
        lease_id=item.integer("lease_id"),
        attempt=item.integer("attempt", at_least=1),
        token=item.integer("token"),
        job_id=item.text("job_id"),
        command=item.texts("command"),
        env=MappingProxyType(item.environment("env")),
        working_dir=_words(item, "working_dir"),
        checkpoint_dir=item.optional("checkpoint_dir", item.text),
        workers=item.integers("workers"),
        rank=item.integer("rank"),
        world_size=item.integer("world_size", at_least=1),
        local_ranks=item.integers("local_ranks"),
        master_addr=item.text("master_addr"),
        master_port=item.integer("master_port"),
        total_steps=item.optional("total_steps", item.integer),
        steps_done=item.integer("steps_done"),
        remaining_s=item.number("remaining_s"),
        notice_in_s=item.optional("notice_in_s", item.number),
        notice_s=item.number("notice_s", at_least=0.0),
        grace_s=item.number("grace_s", at_least=0.0),
        progress_regex=item.optional("progress_regex", item.text),
        progress_file=item.optional("progress_file", item.text),
        memory_bytes=item.optional("memory_bytes", lambda name: item.integer(name, at_least=1)),
        cpus=item.optional("cpus", lambda name: item.number(name, at_least=0.001)),
        image=_words(item, "image"),
        gang=item.optional("gang", item.integers) or (),
        node_rank=item.optional("node_rank", item.integer) or 0,
        kubernetes=MappingProxyType(dict(_object(item, "kubernetes"))),
        project=_words(item, "project"),
        owner=_words(item, "owner"),
    )


def _lease_report(item: Reader) -> LeaseReport:
    state = item.text("state")
    if state not in set(LeaseState):
        raise item.refuse("state", f"one of {', '.join(LeaseState)}")
    reason = item.optional("reason", item.text)
    if reason is not None and reason not in set(LeaseEnd):
        raise item.refuse("reason", f"null or one of {', '.join(LeaseEnd)}")
    if (state == LeaseState.ENDED) != (reason is not None):
        raise item.refuse("reason", "given for an ended lease and for no other")
    return LeaseReport(
        lease_id=item.integer("lease_id"),
        token=item.integer("token"),
        state=LeaseState(state),
        reason=None if reason is None else LeaseEnd(reason),
        exit_code=item.optional("exit_code", lambda name: item.integer(name, at_least=-64)),
        steps_done=item.integer("steps_done"),
        steps_live=item.integer("steps_live"),
        started_s=item.optional("started_s", item.number),
        message=_words(item, "message"),
        reason_code=_words(item, "reason_code"),
        image_s=item.optional("image_s", _seconds(item)),
        launch_s=item.optional("launch_s", _seconds(item)),
        ready_s=item.optional("ready_s", _seconds(item)),
        devices=item.optional("devices", item.texts) or (),
    )


def _seconds(item: Reader) -> Callable[[str], float]:
    return lambda name: item.number(name, at_least=0.0)


def _object(item: Reader, name: str) -> dict[str, object]:
    value = item.data.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise item.refuse(name, "an object")
    return value


def _words(item: Reader, name: str) -> str:
    value = item.data.get(name, "")
    if not isinstance(value, str):
        raise item.refuse(name, "a text")
    return value


def _check_regex(lease_id: int, pattern: str | None) -> None:
    if pattern is None:
        return
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"lease {lease_id}: progress_regex {pattern!r} is no regular expression: {error}"
        ) from error
    if compiled.groups < 1:
        raise InputError(
            f"lease {lease_id}: progress_regex {pattern!r} has no group; "
            "put the number of steps in one, such as step (\\d+)"
        )
