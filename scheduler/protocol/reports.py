"""The report of an agent on its node: absolute figures, within their bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import InputError
from scheduler.moved import moved_names
from scheduler.protocol import bounds, fields
from scheduler.protocol.gpu_use import GpuUse
from scheduler.protocol.learning import Learning
from scheduler.protocol.reading import read_as, short_form

#: The form of ``NodeReport.place``.
PLACE = re.compile(r"[A-Za-z0-9-]{1,64}(/[A-Za-z0-9-]{1,64}){2}")
#: Problem of every worker while an agent is stopped together with its jobs: they leave in time.
LEAVING = "the agent on this node is being stopped"


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

    lease_id: fields.Count
    token: fields.Count
    state: LeasePhase
    reason: EndReason | None = None
    exit_code: Annotated[int, Meta(ge=bounds.LEAST_EXIT_CODE, le=bounds.MOST_EXIT_CODE)] | None = (
        None
    )
    steps_done: Annotated[int, Meta(ge=0)] = 0
    steps_live: Annotated[int, Meta(ge=0)] = 0
    started_s: fields.Time | None = None
    message: str = ""
    reason_code: str = ""
    image_s: fields.Seconds | None = None
    launch_s: fields.Seconds | None = None
    ready_s: fields.Seconds | None = None
    devices: Annotated[tuple[fields.Name, ...], Meta(max_length=bounds.MOST_DEVICES)] = ()
    progress_problem: str = ""
    gpu: GpuUse | None = None
    nonce: fields.Word = ""
    job_id: fields.Id = ""
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

    index: fields.Count
    worker_type: fields.WordLine
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
        leases: ascending by id; an ended lease stays until a report with this term has delivered
            it and it has left the desired set.
        remarks: texts for people on the node although its workers can be used.
        crashed: whether the previous agent was not stopped, but died.
        place: where the agent's jobs run, as MACHINE/BOOT/FOLDER: the folder is locked, so one
            agent at a time serves a place. Empty if any agent of the node finds its jobs (pods),
            and from agents of the previous release.
        stalls: how often the agent's event loop stood still for over a second since it started.
    """

    node: fields.NameLine
    incarnation: fields.Time
    sequence: fields.Count
    term: fields.Count
    revision: fields.Count
    workers: Annotated[tuple[WorkerReport, ...], Meta(max_length=bounds.MOST_WORKERS)]
    leases: Annotated[tuple[LeaseReport, ...], Meta(max_length=bounds.MOST_REPORTED)]
    remarks: Annotated[tuple[str, ...], Meta(max_length=bounds.MOST_ITEMS)] = ()
    crashed: bool = False
    place: fields.Name = ""
    stalls: fields.Count = 0

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
        workers=tuple(map(_bounded_worker, report.workers)),
        leases=tuple(_bounded_lease(lease) for lease in report.leases),
        remarks=tuple(bounds.clean_text(text) for text in report.remarks[: bounds.MOST_REMARKS]),
    )


def _bounded_worker(worker: WorkerReport) -> WorkerReport:
    if not worker.problem and worker.sharing == "visible":
        return worker
    sharing = bounds.clean_text(worker.sharing, bounds.LONGEST_WORD) or "visible"
    return replace(worker, problem=bounds.clean_text(worker.problem), sharing=sharing)


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


#: Fields of leases that every agent sends.
_SENT = ("steps_done", "steps_live")


def report_from_dict(data: object) -> NodeReport:
    """Read a node's report.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    report = read_as(NodeReport, data)
    if report.place and not PLACE.fullmatch(report.place):
        raise InputError(f"field 'place' is {report.place!r}; it must be MACHINE/BOOT/FOLDER")
    for index, worker in enumerate(report.workers):
        if worker.index != index:  # the scheduler finds it by its position
            raise InputError(
                f"field 'workers[{index}].index' is {worker.index}; it must be {index}"
            )
    if len({lease.lease_id for lease in report.leases}) < len(report.leases):
        raise InputError("field 'leases' must be a list that has each lease once")
    leases = []
    for index, lease in enumerate(report.leases):
        sent = data["leases"][index]  # type: ignore[index]  # read_as has checked the form
        _check(lease, f"leases[{index}]", sent)
        said = lease.message or lease.reason_code or lease.progress_problem
        many = max(lease.steps_done, lease.steps_live) > bounds.MOST_COUNT
        leases.append(_bounded_lease(lease) if said or many else lease)
    return replace(
        report,
        leases=tuple(leases),
        workers=tuple(map(_bounded_worker, report.workers)),
        remarks=tuple(map(bounds.clean_text, report.remarks)),
    )


def _check(lease: LeaseReport, where: str, data: Mapping[str, object]) -> None:
    for name in _SENT:
        if name not in data:
            raise InputError(f"field '{where}.{name}' is missing")
        if getattr(lease, name) > 2**64:  # an agent of an earlier release passes them on unchecked
            shown = short_form(data[name])
            raise InputError(f"field '{where}.{name}' is {shown}; it must be <= {2**64}")
    if lease.state not in fields.PHASES:
        known = ", ".join(fields.PHASES)
        raise InputError(f"field '{where}.state' is '{lease.state}'; it must be one of {known}")
    if (lease.state is LeasePhase.ENDED) != (lease.reason is not None):
        raise InputError(f"field '{where}.reason' must be given for an ended lease and no other")
    if lease.gpu is not None and lease.gpu.used_s > lease.gpu.measured_s:
        raise InputError(
            f"field '{where}.gpu.used_s' is {lease.gpu.used_s}; it must be <= measured_s, "
            f"{lease.gpu.measured_s}"
        )


#: Two enumerations of 0.2.0 are now one, and the phases of a lease.
__getattr__ = moved_names(
    __name__,
    {
        "LeaseEnd": "scheduler.domain.lease_life.EndReason",
        "LeaseState": "scheduler.domain.lease_life.LeasePhase",
    },
)
