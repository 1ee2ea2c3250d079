"""The values of the level-triggered protocol between the scheduler and an agent.

Downwards: the set of leases that the agent is to hold, with a revision. Upwards: what there is.
Both are states and not orders, so a message that is lost is made good by the next, a repeated one
changes nothing, and one that is overtaken is ignored.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import marshal
import re
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.errors import InputError
from scheduler.protocol import bounds
from scheduler.protocol.gpu_use import GpuUse, gpu_use
from scheduler.protocol.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: From SIGKILL to a lease's deadline, as agents keep it unless they are set otherwise.
MARGIN_S = 1.0
#: Exit code of a process that left early with its progress saved; the supervisor and the SDK, which
#: import nothing of ours, state it too.
LEFT_EARLY = 75
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


_STATES, _ENDS = frozenset(LeaseState), frozenset(LeaseEnd)


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
        secret_env: those that are kept encrypted, in the clear; never written to a disk.
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
        kubernetes: what the job says about its pods, as plain JSON values; see
            ``agent.kubernetes.pods``.
        project: whose quota it falls under; empty where the scheduler does not tell.
        owner: who submitted it, likewise.
        plan: by which it is to be launched, as its configuration says; empty for none.
        uid: under which its processes run where the node keeps owners apart: that of the owner
            within the project, on every node; None where the scheduler does not tell.
        upload: hash of the code that it is started in, which the agent fetches; empty for none.
    """

    lease_id: int
    attempt: int
    token: int
    job_id: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    secret_env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
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
    plan: str = ""
    uid: int | None = None
    upload: str = ""

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
class Unusable:
    """A lease that the agent is to hold and cannot make sense of: it ends, and no other one.

    Attributes:
        lease_id: which.
        token: its fencing token.
        message: what is wrong with it.
    """

    lease_id: int
    token: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredExec:
    """A command that somebody wants run beside a job's processes; told once.

    Attributes:
        exec_id: by which the agent speaks of it.
        lease_id: under which the job runs.
        position: of the process on this node beside which it runs.
        command: with its arguments.
        stdin: what it reads.
        most_s: how long it may run.
    """

    exec_id: str
    lease_id: int
    position: int = 0
    command: tuple[str, ...]
    stdin: bytes = b""
    most_s: float = 3600.0

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON's plain types."""
        stdin = base64.b64encode(self.stdin).decode()
        return asdict(self) | {"command": list(self.command), "stdin": stdin}


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
        unusable: leases that could not be read; only who receives the set knows of them.
        execs: commands to run; agents of earlier releases pass them over.
    """

    term: int = 0
    revision: int
    held_s: float = 0.0
    leases: tuple[DesiredLease, ...]
    images: tuple[DesiredImage, ...] = ()
    unusable: tuple[Unusable, ...] = ()
    execs: tuple[DesiredExec, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a lease that is listed twice."""
        ids = [lease.lease_id for lease in self.leases]
        ids += [lease.lease_id for lease in self.unusable]
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
        progress_problem: why its steps are not seen although it says where to look for them.
        gpu: how busy its GPUs are; None where nobody measures.
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
    progress_problem: str = ""
    gpu: GpuUse | None = None


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
        crashed: whether the agent before this one was not stopped, but died.
    """

    node: str
    incarnation: float
    sequence: int
    term: int
    revision: int
    workers: tuple[WorkerReport, ...]
    leases: tuple[LeaseReport, ...]
    remarks: tuple[str, ...] = ()
    crashed: bool = False


def to_dict(value: Desired | DesiredLease | NodeReport) -> dict[str, object]:
    """Return a value as JSON's plain types; of a report, what is beyond the bounds is clipped."""
    if isinstance(value, DesiredLease):
        return _lease_to_dict(value)
    if isinstance(value, Desired):
        told: dict[str, object] = {
            "term": value.term,
            "revision": value.revision,
            "held_s": value.held_s,
            "leases": [sent(lease) for lease in value.leases],
            "images": [asdict(image) for image in value.images],
        }
        return told | ({"execs": [one.to_dict() for one in value.execs]} if value.execs else {})
    return asdict(bounded(value))


def bounded(report: NodeReport) -> NodeReport:
    """Return a report as it may be sent: what jobs, nodes and clocks make up, within its bounds.

    A report that is refused says nothing of the other leases either.
    """
    return replace(
        report,
        workers=tuple(
            replace(
                worker,
                problem=bounds.words(worker.problem),
                sharing=bounds.words(worker.sharing, bounds.LONGEST_WORD),
            )
            for worker in report.workers
        ),
        leases=tuple(_bounded_lease(lease) for lease in report.leases),
        remarks=tuple(bounds.words(text) for text in report.remarks[: bounds.MOST_REMARKS]),
    )


def _bounded_lease(lease: LeaseReport) -> LeaseReport:
    devices = lease.devices[: bounds.MOST_DEVICES]
    return replace(
        lease,
        exit_code=bounds.exit_code(lease.exit_code),
        steps_done=bounds.clipped(lease.steps_done),
        steps_live=bounds.clipped(lease.steps_live),
        started_s=bounds.moment(lease.started_s),
        message=bounds.words(lease.message),
        progress_problem=bounds.words(lease.progress_problem),
        reason_code=bounds.words(lease.reason_code, bounds.LONGEST_WORD),
        image_s=bounds.duration(lease.image_s),
        launch_s=bounds.duration(lease.launch_s),
        ready_s=bounds.duration(lease.ready_s),
        devices=tuple(bounds.words(name, bounds.LONGEST_NAME) for name in devices),
    )


def desired_from_dict(data: object) -> Desired:
    """Read a desired set. A lease that makes no sense is set apart: the others are not its fault.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    message = Reader.of(data)
    term, revision = message.integer("term"), message.integer("revision")
    leases, unusable = _leases(message)
    return Desired(
        term=term,
        revision=revision,
        held_s=message.number("held_s", at_least=0.0),
        leases=leases,
        images=tuple(
            DesiredImage(
                name=item.text("name"), pull_secrets=item.optional("pull_secrets", item.texts) or ()
            )
            for item in message.optional("images", message.objects) or ()
        ),
        unusable=unusable,
        execs=_execs(message),
    )


def _execs(message: Reader) -> tuple[DesiredExec, ...]:
    """Return the commands; one that cannot be read is passed over: leases must not wait for it."""
    found = []
    for item in message.optional("execs", message.objects) or ():
        with contextlib.suppress(InputError):
            found.append(_exec(item))
    return tuple(found)


def _exec(item: Reader) -> DesiredExec:
    try:
        stdin = base64.b64decode(item.maybe("stdin", longest=2**20), validate=True)
    except ValueError as error:
        raise InputError(f"stdin is no base64: {error}") from error
    return DesiredExec(
        exec_id=item.text("exec_id"),
        lease_id=item.integer("lease_id"),
        position=item.integer("position"),
        command=tuple(item.texts("command")),
        stdin=stdin,
        most_s=item.number("most_s", at_least=0.0),
    )


def _leases(message: Reader) -> tuple[tuple[DesiredLease, ...], tuple[Unusable, ...]]:
    leases, unusable = [], []
    for item in message.objects("leases", most=bounds.MOST_DESIRED):
        try:
            leases.append(_lease(item))
        except InputError as error:
            unusable.append(
                Unusable(
                    lease_id=item.integer("lease_id"),
                    token=item.integer("token"),
                    message=bounds.words(error),
                )
            )
    return tuple(leases), tuple(unusable)


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
        node=message.name("node", longest=bounds.LONGEST_NAME),
        incarnation=message.number("incarnation"),
        sequence=message.integer("sequence"),
        term=message.integer("term"),
        revision=message.integer("revision"),
        workers=_worker_reports(message),
        leases=_lease_reports(message),
        remarks=message.sayings("remarks"),
        crashed=message.optional("crashed", message.flag) or False,
    )


def _lease_to_dict(lease: DesiredLease) -> dict[str, object]:
    special = {"env", "secret_env", "kubernetes"}
    names = (name for name in DesiredLease.__dataclass_fields__ if name not in special)
    plain: dict[str, object] = {name: getattr(lease, name) for name in names}
    for name in ("command", "workers", "local_ranks", "gang"):
        plain[name] = list(getattr(lease, name))
    if not lease.plan:
        del plain["plan"]
    if lease.uid is None:
        del plain["uid"]
    if not lease.upload:
        del plain["upload"]
    return plain | {"env": dict(lease.env), "kubernetes": dict(lease.kubernetes)}


def sent(lease: DesiredLease) -> dict[str, object]:
    """Return a lease as it is sent to its node: alone here its secret variables are written."""
    plain = _lease_to_dict(lease)
    return plain | {"secret_env": dict(lease.secret_env)} if lease.secret_env else plain


def _lease(item: Reader) -> DesiredLease:
    return DesiredLease(
        lease_id=item.integer("lease_id"),
        attempt=item.integer("attempt", at_least=1),
        token=item.integer("token"),
        job_id=item.text("job_id", longest=bounds.LONGEST_ID),
        command=item.texts("command"),
        env=MappingProxyType(item.environment("env")),
        secret_env=MappingProxyType(item.optional("secret_env", item.secrets) or {}),
        working_dir=item.maybe("working_dir", longest=bounds.LONGEST_PATH),
        checkpoint_dir=item.optional("checkpoint_dir", _path(item)),
        workers=item.integers("workers", most=bounds.MOST_WORKERS),
        rank=item.integer("rank", at_most=bounds.MOST_RANKS),
        world_size=item.integer("world_size", at_least=1, at_most=bounds.MOST_RANKS),
        local_ranks=item.integers("local_ranks", most=bounds.MOST_WORKERS),
        master_addr=item.text("master_addr", longest=bounds.LONGEST_NAME),
        master_port=item.integer("master_port", at_most=65_535),
        total_steps=item.optional("total_steps", item.integer),
        steps_done=item.integer("steps_done"),
        remaining_s=item.number("remaining_s"),
        notice_in_s=item.optional("notice_in_s", item.number),
        notice_s=item.number("notice_s", at_least=0.0, at_most=bounds.LONGEST_S),
        grace_s=item.number("grace_s", at_least=0.0, at_most=bounds.LONGEST_S),
        progress_regex=item.optional("progress_regex", item.text),
        progress_file=item.optional("progress_file", _path(item)),
        memory_bytes=item.optional("memory_bytes", lambda name: item.integer(name, at_least=1)),
        cpus=item.optional("cpus", lambda name: item.number(name, at_least=0.001)),
        image=item.maybe("image", longest=bounds.LONGEST_PATH),
        gang=item.optional("gang", item.integers) or (),
        node_rank=item.optional("node_rank", item.integer) or 0,
        kubernetes=MappingProxyType(item.json("kubernetes")),
        project=item.maybe("project", longest=bounds.LONGEST_NAME),
        owner=item.maybe("owner", longest=bounds.LONGEST_NAME),
        plan=item.maybe("plan", longest=bounds.LONGEST_PATH),
        uid=item.optional("uid", _uid(item)),
        upload=item.maybe("upload", longest=bounds.LONGEST_WORD),
    )


def _path(item: Reader) -> Callable[[str], str]:
    return lambda name: item.text(name, longest=bounds.LONGEST_PATH)


def _uid(item: Reader) -> Callable[[str], int]:
    return lambda name: item.integer(name, at_least=bounds.LEAST_UID, at_most=bounds.LARGEST_UID)


#: Lists of workers as they came (most nodes are alike, and tell the same each time) and as read;
#: how many are kept, and of how many bytes each.
_KNOWN_WORKERS: dict[bytes, tuple[WorkerReport, ...]] = {}
_MOST_KNOWN, _LONGEST_KNOWN = 1024, 16_384


def _worker_reports(message: Reader) -> tuple[WorkerReport, ...]:
    """Read a node's workers, which are mostly what many others have told before."""
    try:
        # Its version 2 writes equal values as equal bytes.
        wire = marshal.dumps(message.data.get("workers"), 2)  # type: ignore[arg-type]
    except ValueError:  # nested too deeply
        wire = b""
    if not 0 < len(wire) <= _LONGEST_KNOWN:
        return _read_workers(message)
    known = _KNOWN_WORKERS.get(wire)
    if known is None:
        known = _read_workers(message)
        if len(_KNOWN_WORKERS) >= _MOST_KNOWN:
            _KNOWN_WORKERS.clear()
        _KNOWN_WORKERS[wire] = known
    return known


def _read_workers(message: Reader) -> tuple[WorkerReport, ...]:
    return tuple(
        _worker_report(item, index)
        for index, item in enumerate(message.objects("workers", most=bounds.MOST_WORKERS))
    )


def _worker_report(item: Reader, index: int) -> WorkerReport:
    """Read a worker. They are numbered as they stand: the scheduler finds them by their place."""
    return WorkerReport(
        index=item.integer("index", at_least=index, at_most=index),
        worker_type=item.name("worker_type", longest=bounds.LONGEST_WORD),
        problem=item.words("problem"),
        sharing=item.words("sharing", longest=bounds.LONGEST_WORD) or "visible",
    )


def _lease_reports(message: Reader) -> tuple[LeaseReport, ...]:
    leases = tuple(
        _lease_report(item) for item in message.objects("leases", most=bounds.MOST_REPORTED)
    )
    if len({lease.lease_id for lease in leases}) < len(leases):
        raise message.refuse("leases", "a list that has each lease once")
    return leases


def _lease_report(item: Reader) -> LeaseReport:
    state = item.text("state")
    if state not in _STATES:
        raise item.refuse("state", f"one of {', '.join(LeaseState)}")
    reason = item.optional("reason", item.text)
    if reason is not None and reason not in _ENDS:
        raise item.refuse("reason", f"null or one of {', '.join(LeaseEnd)}")
    if (state == LeaseState.ENDED) != (reason is not None):
        raise item.refuse("reason", "given for an ended lease and for no other")
    return LeaseReport(
        lease_id=item.integer("lease_id"),
        token=item.integer("token"),
        state=LeaseState(state),
        reason=None if reason is None else LeaseEnd(reason),
        exit_code=_exit_code(item),
        steps_done=_steps(item, "steps_done"),
        steps_live=_steps(item, "steps_live"),
        started_s=item.optional("started_s", item.number),
        message=item.words("message"),
        reason_code=item.words("reason_code", longest=bounds.LONGEST_WORD),
        image_s=_seconds(item, "image_s"),
        launch_s=_seconds(item, "launch_s"),
        ready_s=_seconds(item, "ready_s"),
        devices=item.optional("devices", _devices(item)) or (),
        progress_problem=item.words("progress_problem"),
        gpu=item.optional("gpu", lambda name: gpu_use(item, name)),
    )


def _exit_code(item: Reader) -> int | None:
    if item.data.get("exit_code") is None:
        return None
    least, most = bounds.LEAST_EXIT_CODE, bounds.MOST_EXIT_CODE
    return item.integer("exit_code", at_least=least, at_most=most)


def _steps(item: Reader, name: str) -> int:
    """Read a count of steps, which an agent of an earlier release sends on as the job told it."""
    return bounds.clipped(item.integer(name, at_most=2**64))


def _seconds(item: Reader, name: str) -> float | None:
    if item.data.get(name) is None:
        return None
    return item.number(name, at_least=0.0, at_most=bounds.LONGEST_S)


def _devices(item: Reader) -> Callable[[str], tuple[str, ...]]:
    return lambda name: item.texts(name, most=bounds.MOST_DEVICES, longest=bounds.LONGEST_NAME)
