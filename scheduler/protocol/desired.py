"""The values of the level-triggered protocol between the scheduler and an agent.

Downwards: the leases that the agent must hold, with a revision. Upwards: the agent's state. Both
are states and not orders. So the next message makes up for a lost one, a repeated one changes
nothing, and an overtaken one is ignored.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, to_builtins

from scheduler.errors import InputError
from scheduler.protocol import bounds, fields
from scheduler.protocol.reading import read_as
from scheduler.protocol.reports import (
    NodeReport,
    bound_report,
)

#: Seconds from SIGKILL to a lease's deadline, the default of agents.
MARGIN_S = 1.0
#: Exit code of a process that left early with its progress saved. The supervisor and the SDK, which
#: import nothing of the scheduler, state it too.
LEFT_EARLY = 75
#: ``reason_code`` of a lease if its processes left early although nothing had asked them to.
LEFT_UNASKED = "LeftUnasked"
#: Allowed names of nodes: part of a path and of a file's name.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


#: Fields with a default that the scheduler sends all the same.
_SENT = (
    *("env", "rank", "world_size", "local_ranks", "master_addr", "master_port", "steps_done"),
    *("notice_s", "grace_s"),
)


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

    lease_id: fields.Count
    attempt: fields.Positive
    token: fields.Count
    job_id: Annotated[fields.Id, Meta(min_length=1)]
    command: fields.Texts
    env: fields.Environment = field(default_factory=lambda: MappingProxyType({}))
    secret_env: fields.Environment = field(default_factory=lambda: MappingProxyType({}), repr=False)
    working_dir: fields.MaybePath = "/"
    checkpoint_dir: fields.Path | None = None
    workers: fields.Workers
    rank: Annotated[int, Meta(ge=0, le=bounds.MOST_RANKS)] = 0
    world_size: Annotated[int, Meta(ge=1, le=bounds.MOST_RANKS)] = 1
    local_ranks: fields.Workers = (0,)
    master_addr: Annotated[fields.Name, Meta(min_length=1)] = "127.0.0.1"
    master_port: Annotated[int, Meta(ge=0, le=65_535)] = 29500
    total_steps: fields.Count | None = None
    steps_done: fields.Count = 0
    remaining_s: fields.Time
    notice_in_s: fields.Time | None = None
    notice_s: fields.Seconds = 5.0
    grace_s: fields.Seconds = 5.0
    progress_regex: fields.Text | None = None
    progress_file: fields.Path | None = None
    memory_bytes: fields.Positive | None = None
    cpus: Annotated[float, Meta(ge=0.001, le=bounds.LATEST_S)] | None = None
    image: fields.MaybePath = ""
    gang: fields.Counts = ()
    node_rank: fields.Count = 0
    kubernetes: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    project: fields.Name = ""
    owner: fields.Name = ""
    plan: fields.MaybePath = ""
    uid: Annotated[int, Meta(ge=bounds.LEAST_UID, le=bounds.LARGEST_UID)] | None = None
    upload: fields.Word = ""
    nonce: fields.Word = ""

    def __post_init__(self) -> None:
        """Refuse a lease that could not be launched; its mappings stay as they are."""
        for name in ("env", "secret_env", "kubernetes"):
            object.__setattr__(self, name, MappingProxyType(getattr(self, name)))
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

    name: fields.Text
    pull_secrets: fields.Texts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A desired lease that the agent cannot read: it ends, and no other lease does.

    Attributes:
        lease_id: its id.
        token: its fencing token.
        message: its fault.
        nonce: as the scheduler sent it.
    """

    lease_id: fields.Count
    token: fields.Count
    message: str = ""
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

    exec_id: fields.Text
    lease_id: fields.Count
    position: fields.Count = 0
    command: fields.Texts
    stdin: Annotated[bytes, Meta(max_length=2**20)] = b""
    most_s: fields.Elapsed = 3600.0

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
    found: dict[str, object] = to_builtins(bound_report(value))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A desired set as it is received: its parts are read one by one."""

    term: fields.Count
    revision: fields.Count
    held_s: fields.Elapsed
    leases: Annotated[tuple[dict[str, object], ...], Meta(max_length=bounds.MOST_DESIRED)]
    images: Annotated[tuple[DesiredImage, ...], Meta(max_length=bounds.MOST_ITEMS)] = ()
    execs: Annotated[tuple[object, ...], Meta(max_length=bounds.MOST_ITEMS)] = ()


def desired_from_dict(data: object) -> Desired:
    """Read a desired set. A lease that cannot be read is set apart, for the sake of the others.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    message = read_as(_Message, data)
    leases, unusable, execs = [], [], []
    for position, item in enumerate(message.leases):
        try:
            leases.append(lease_from_dict(item, where := f"leases[{position}]"))
        except InputError as error:
            one = read_as(Unusable, item | {"message": ""}, where)
            nonce = bounds.clean_text(one.nonce, bounds.LONGEST_WORD)
            unusable.append(replace(one, nonce=nonce, message=bounds.clean_text(error)))
    for told in message.execs:  # one that cannot be read is skipped: leases must not wait for it
        with contextlib.suppress(InputError):
            execs.append(read_as(DesiredExec, told, sent=("position", "most_s")))
    return Desired(
        term=message.term,
        revision=message.revision,
        held_s=message.held_s,
        leases=tuple(leases),
        images=message.images,
        unusable=tuple(unusable),
        execs=tuple(execs),
    )


def lease_from_dict(data: object, path: str = "") -> DesiredLease:
    """Read one desired lease.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    given: object = {"working_dir": "", **data} if isinstance(data, dict) else data
    lease = read_as(DesiredLease, given, path, sent=_SENT)
    for name in ("env", "secret_env"):
        env, longest = getattr(lease, name), bounds.LONGEST_TEXT
        if any(len(k) + len(v) > longest or not bounds.is_storable(v) for k, v in env.items()):
            must = f"must be texts without NUL, each of {longest} characters at most"
            raise InputError(f"field '{path}{path and '.'}{name}' {must}")
    if not bounds.plain_json(dict(lease.kubernetes)):
        raise InputError(f"field '{path}{path and '.'}kubernetes' must be plain JSON of 64 bits")
    return lease


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
