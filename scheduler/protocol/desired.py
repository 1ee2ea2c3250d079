"""The values of the level-triggered protocol between the scheduler and an agent.

Downwards: the leases that the agent must hold, with a revision. Upwards: the agent's state. Both
are states and not orders. So the next message makes up for a lost one, a repeated one changes
nothing, and an overtaken one is ignored.
"""

from __future__ import annotations

import base64
import contextlib
import re
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.errors import InputError
from scheduler.protocol import bounds
from scheduler.protocol.reading import Reader
from scheduler.protocol.reports import (
    NodeReport,
    bound_report,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: Seconds from SIGKILL to a lease's deadline, the default of agents.
MARGIN_S = 1.0
#: Exit code of a process that left early with its progress saved. The supervisor and the SDK, which
#: import nothing of the scheduler, state it too.
LEFT_EARLY = 75
#: Allowed names of nodes: part of a path and of a file's name.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredLease:
    """A lease that the agent must hold, with everything that a launch needs.

    Times are durations as of the scheduler's answer: the two clocks share no origin.

    Attributes:
        lease_id: running number, not reused unless the database loses entries; see ``nonce``.
        attempt: 1 for the job's first lease, and so on.
        token: fencing token; grows with every lease.
        job_id: the job's name.
        command: (n,) program and arguments; never given to a shell.
        env: the job's own environment variables.
        secret_env: its secret variables, decrypted; never written to a disk.
        working_dir: absolute path; empty for a folder of the job's own on this node.
        checkpoint_dir: the folder of the job's state; None if it keeps none.
        workers: (n,) local indices of the workers held.
        rank: global rank of the first process on this node.
        world_size: processes of the whole gang, over all nodes.
        local_ranks: (n,) local rank of each process to start here; its RANK is ``rank`` plus its
            position.
        master_addr: the address of rank 0.
        master_port: the port that rank 0 may listen on.
        total_steps: steps of the whole job; None if unknown.
        steps_done: checkpointed steps as the scheduler knows them.
        remaining_s: until the deadline.
        notice_in_s: until the job gets notice that the lease will end; None while no end is
            announced.
        notice_s: how long before SIGTERM the job gets notice if the lease is not renewed.
        grace_s: from SIGTERM to SIGKILL.
        progress_regex: searched in each line of output; group ``steps`` (or 1) is the number of
            steps done, group ``saved`` those that are checkpointed.
        progress_file: a file; its last number is the count of checkpointed steps. Relative to the
            working directory.
        memory_bytes: limit of host memory for its processes on this node, or None.
        cpus: limit of processor cores for them, or None.
        image: container image; empty if it runs as local processes.
        gang: (n,) workers held on each node of the gang, in the order of ranks; empty if the
            scheduler sends none.
        node_rank: position of this node in ``gang``.
        kubernetes: the job's settings of its pods, as plain JSON values; see
            ``agent.kubernetes.pods.pods``.
        project: the job's project; empty if the scheduler sends none.
        owner: the user that submitted it; empty if the scheduler sends none.
        plan: the plan of its configuration for the launch; empty for none.
        uid: uid of its processes if the node keeps owners apart: that of the owner within the
            project, on every node; None if the scheduler sends none.
        upload: hash of the code that it is started in, which the agent fetches; empty for none.
        nonce: distinguishes it from other leases of the same number, job and attempt; empty if the
            scheduler, or the agent that stored the lease, is of the previous release.
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
    nonce: str = ""

    def __post_init__(self) -> None:
        """Refuse a lease that could not be launched."""
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
        name: as the job gives it.
        pull_secrets: names of the Secrets for pulling it.
    """

    name: str
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A desired lease that the agent cannot read: it ends, and no other lease does.

    Attributes:
        lease_id: its id.
        token: its fencing token.
        message: its fault.
        nonce: as the scheduler sent it.
    """

    lease_id: int
    token: int
    message: str
    nonce: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredExec:
    """A command that a user wants to run beside a job's processes; sent once.

    Attributes:
        exec_id: the agent's reports name it.
        lease_id: the job's lease.
        position: of the process on this node beside which it runs.
        command: with its arguments.
        stdin: its standard input.
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
    """All leases that an agent must hold.

    Attributes:
        term: fencing token of the scheduler that sends it; a new leader has a greater one.
        revision: grows within a term with every change.
        held_s: how long the scheduler held the request before it answered. The agent counts
            ``remaining_s`` from sending the request plus this, so that a slow answer can only
            make its deadline earlier than the scheduler's, never later.
        leases: ascending by id.
        images: images that the node may soon need, most urgent first; a hint.
        unusable: leases that could not be read; only the receiver fills this.
        execs: commands to run; agents of earlier releases ignore them.
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


def to_dict(value: Desired | DesiredLease | NodeReport) -> dict[str, object]:
    """Return a value as JSON's plain types; a report is cut to its bounds."""
    if isinstance(value, DesiredLease):
        return _lease_to_dict(value)
    if isinstance(value, Desired):
        told: dict[str, object] = {
            "term": value.term,
            "revision": value.revision,
            "held_s": value.held_s,
            "leases": [lease_to_send(lease) for lease in value.leases],
            "images": [asdict(image) for image in value.images],
        }
        return told | ({"execs": [one.to_dict() for one in value.execs]} if value.execs else {})
    return asdict(bound_report(value))


def desired_from_dict(data: object) -> Desired:
    """Read a desired set. A lease that cannot be read is set apart, for the sake of the others.

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
    """Return the commands; one that cannot be read is skipped: leases must not wait for it."""
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
                    nonce=item.words("nonce", longest=bounds.LONGEST_WORD),
                    message=bounds.clean_text(error),
                )
            )
    return tuple(leases), tuple(unusable)


def lease_from_dict(data: object) -> DesiredLease:
    """Read one desired lease.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    return _lease(Reader.of(data))


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
    if not lease.nonce:
        del plain["nonce"]
    return plain | {"env": dict(lease.env), "kubernetes": dict(lease.kubernetes)}


def lease_to_send(lease: DesiredLease) -> dict[str, object]:
    """Return a lease as it is sent to its node: only this form has its secret variables."""
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
        nonce=item.maybe("nonce", longest=bounds.LONGEST_WORD),
    )


def _path(item: Reader) -> Callable[[str], str]:
    return lambda name: item.text(name, longest=bounds.LONGEST_PATH)


def _uid(item: Reader) -> Callable[[str], int]:
    return lambda name: item.integer(name, at_least=bounds.LEAST_UID, at_most=bounds.LARGEST_UID)
