"""The report of an agent on its node: absolute figures, within their bounds."""

from __future__ import annotations

import marshal
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.moved import moved_names
from scheduler.protocol import bounds
from scheduler.protocol.gpu_use import GpuUse, read_gpu_use
from scheduler.protocol.learning import Learning, read_learning
from scheduler.protocol.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable


#: The form of ``NodeReport.place``.
PLACE = re.compile(r"[A-Za-z0-9-]{1,64}(/[A-Za-z0-9-]{1,64}){2}")
#: Problem of every worker while an agent is stopped together with its jobs: they leave in time.
LEAVING = "the agent on this node is being stopped"

_STATES: Final = (
    LeasePhase.STARTING,
    LeasePhase.RUNNING,
    LeasePhase.STOPPING,
    LeasePhase.ENDED,
)
_ENDS = frozenset(EndReason)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReport:
    """The state of one lease on this node.

    Attributes:
        lease_id: its id.
        token: its fencing token.
        state: the state of its processes.
        reason: why it ended; None before.
        exit_code: of the first process that failed, else 0; minus the number of the signal; None
            before the end or if it is not known.
        steps_done: checkpointed steps since the job's first start; never shrinks.
        steps_live: steps that the running processes have done, checkpointed or not.
        started_s: seconds since the Unix epoch; None before the start.
        message: a text for people on the end, or on the trouble that keeps it from starting.
        reason_code: that as one word such as Kubernetes uses (``ImagePullBackOff``), or empty.
        image_s: seconds that its image took, mostly for the pull; None if not measured.
        launch_s: seconds from its placement to the start of its first process; None if not
            measured. Reported once the launch is over, together with the next.
        ready_s: seconds from its placement until it was ready; None if it ended before.
        devices: the node's names of its accelerators, if the node reports them: UUIDs, or indices
            that the agent has chosen.
        progress_problem: why its steps cannot be read although the job declares how.
        gpu: the use of its GPUs; None if not measured.
        nonce: of the lease, as the scheduler sent it; empty if it sent none.
        job_id: the job; empty from agents of the previous release.
        learning: its measurements if its batch may change; None if it reports none.
    """

    lease_id: int
    token: int
    state: LeasePhase
    reason: EndReason | None = None
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
    nonce: str = ""
    job_id: str = ""
    learning: Learning | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A worker as the agent sees it.

    Attributes:
        index: local index.
        worker_type: its hardware class.
        problem: why it cannot be used, empty if it can.
        sharing: how two jobs can hold it at once: ``visible`` (both see the device),
            ``time-slicing``, ``mps``, or ``exclusive`` if they cannot.
    """

    index: int
    worker_type: str
    problem: str = ""
    sharing: str = "visible"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """An agent's whole state, as absolute figures.

    Attributes:
        node: the node's name.
        incarnation: greater than that of every earlier agent with this state folder; otherwise the
            seconds since the Unix epoch at which the agent started.
        sequence: grows with every report of an incarnation; the scheduler ignores older ones.
        term: of the newest desired set that the agent has accepted.
        revision: of that set.
        workers: by local index.
        leases: ascending by id; an ended lease stays until it was delivered and has left the
            desired set.
        remarks: texts for people on the node although its workers can be used.
        crashed: whether the previous agent was not stopped, but died.
        place: where the agent's jobs run, as MACHINE/BOOT/FOLDER: the folder is locked, so one
            agent at a time serves a place. Empty if any agent of the node finds its jobs (pods),
            and from agents of the previous release.
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
    place: str = ""

    @property
    def instance(self) -> str:
        """The name of this agent among all that serve the node; empty if it reports no place."""
        return instance_of(self.place, self.incarnation)


def instance_of(place: str, incarnation: float) -> str:
    """Return the name of an agent, from its place and incarnation."""
    return f"{place}/{incarnation!r}" if place else ""


def bound_report(report: NodeReport) -> NodeReport:
    """Return a report as it may be sent: values from jobs, nodes and clocks, cut to their bounds.

    A refused report says nothing of the other leases either.
    """
    return replace(
        report,
        workers=tuple(
            replace(
                worker,
                problem=bounds.clean_text(worker.problem),
                sharing=bounds.clean_text(worker.sharing, bounds.LONGEST_WORD),
            )
            for worker in report.workers
        ),
        leases=tuple(_bounded_lease(lease) for lease in report.leases),
        remarks=tuple(bounds.clean_text(text) for text in report.remarks[: bounds.MOST_REMARKS]),
    )


def _bounded_lease(lease: LeaseReport) -> LeaseReport:
    devices = lease.devices[: bounds.MOST_DEVICES]
    return replace(
        lease,
        exit_code=bounds.exit_code(lease.exit_code),
        steps_done=bounds.clipped_count(lease.steps_done),
        steps_live=bounds.clipped_count(lease.steps_live),
        started_s=bounds.bounded_time(lease.started_s),
        message=bounds.clean_text(lease.message),
        progress_problem=bounds.clean_text(lease.progress_problem),
        reason_code=bounds.clean_text(lease.reason_code, bounds.LONGEST_WORD),
        image_s=bounds.bounded_duration(lease.image_s),
        launch_s=bounds.bounded_duration(lease.launch_s),
        ready_s=bounds.bounded_duration(lease.ready_s),
        devices=tuple(bounds.clean_text(name, bounds.LONGEST_NAME) for name in devices),
    )


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
        place="" if message.data.get("place", "") == "" else _place(message),
    )


def _place(message: Reader) -> str:
    place = message.name("place", longest=bounds.LONGEST_NAME)
    if not PLACE.fullmatch(place):
        raise message.refuse("place", "MACHINE/BOOT/FOLDER, each of letters, digits and '-'")
    return place


#: Lists of workers as received (most nodes are alike, and repeat theirs each time) and as read; how
#: many are kept, and of how many bytes each.
_KNOWN_WORKERS: dict[bytes, tuple[WorkerReport, ...]] = {}
_MOST_KNOWN, _LONGEST_KNOWN = 1024, 16_384


def _worker_reports(message: Reader) -> tuple[WorkerReport, ...]:
    """Read a node's workers, from a cache: most nodes report the same list as others."""
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
    """Read a worker. Its index must be its position, by which the scheduler finds it."""
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
        raise item.refuse("state", f"one of {', '.join(_STATES)}")
    reason = item.optional("reason", item.text)
    if reason is not None and reason not in _ENDS:
        raise item.refuse("reason", f"null or one of {', '.join(EndReason)}")
    if (state == LeasePhase.ENDED) != (reason is not None):
        raise item.refuse("reason", "given for an ended lease and for no other")
    return LeaseReport(
        lease_id=item.integer("lease_id"),
        token=item.integer("token"),
        state=LeasePhase(state),
        reason=None if reason is None else EndReason(reason),
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
        gpu=item.optional("gpu", lambda name: read_gpu_use(item, name)),
        nonce=item.maybe("nonce", longest=bounds.LONGEST_WORD),
        job_id=item.maybe("job_id", longest=bounds.LONGEST_ID),
        learning=item.optional("learning", lambda name: read_learning(item, name)),
    )


def _exit_code(item: Reader) -> int | None:
    if item.data.get("exit_code") is None:
        return None
    least, most = bounds.LEAST_EXIT_CODE, bounds.MOST_EXIT_CODE
    return item.integer("exit_code", at_least=least, at_most=most)


def _steps(item: Reader, name: str) -> int:
    """Read a count of steps, which an agent of an earlier release passes on unchecked."""
    return bounds.clipped_count(item.integer(name, at_most=2**64))


def _seconds(item: Reader, name: str) -> float | None:
    if item.data.get(name) is None:
        return None
    return item.number(name, at_least=0.0, at_most=bounds.LONGEST_S)


def _devices(item: Reader) -> Callable[[str], tuple[str, ...]]:
    return lambda name: item.texts(name, most=bounds.MOST_DEVICES, longest=bounds.LONGEST_NAME)


#: Two enumerations of 0.2.0 are now one, and the phases of a lease.
__getattr__ = moved_names(
    __name__,
    {
        "LeaseEnd": "scheduler.domain.lease_life.EndReason",
        "LeaseState": "scheduler.domain.lease_life.LeasePhase",
    },
)
