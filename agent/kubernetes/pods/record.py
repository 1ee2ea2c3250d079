"""One lease in the Kubernetes backend, in memory and over restarts of the agent.

The pod itself carries the lease (annotation) and the secret (environment). A small file holds the
values that only the agent knows: the deadline and its orders to the pod. If the file is lost with
the agent's pod, the next agent gives the found pod one short term: the scheduler renews it within
seconds, or it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from agent.clock import lease_clock_s
from agent.disk import is_full
from agent.kubernetes.names import LEASE_JSON, lease_annotations, pod_name
from agent.kubernetes.pods.ends import (
    Orders,
    PodLook,
    end_of,
    look_at,
    stalled_launch,
    start_failure,
    taken_away,
)
from agent.kubernetes.templates.template import CONTAINER
from agent.lease_record import LeaseRecord, tenant_of
from agent.logs.job_output import write_json
from agent.logs.matching import found_before
from scheduler.domain.facts.troubles import is_node_fault
from scheduler.domain.lease_life import EndReason
from scheduler.errors import InputError
from scheduler.protocol.bounds import FILE_BYTES, LONGEST_NAME
from scheduler.protocol.desired import LEFT_UNASKED, lease_from_dict
from scheduler.protocol.reading import Reader, decode_json
from scheduler.protocol.reports import LeaseReport

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping
    from pathlib import Path

    from agent.kubernetes.pods.ends import StartBounds
    from scheduler.protocol.desired import DesiredLease

#: How long an agent without a lease's file assumes that it holds: until the scheduler has surely
#: been asked. The bound on a dead agent's jobs covers this extra run time.
UNKNOWN_TERM_S: Final = 10.0


@dataclass(kw_only=True)
class PodRecord(LeaseRecord):
    """The state of one lease with a job in a pod; see ``LeaseRecord``.

    Attributes:
        name: of its pod.
        file: the state that must survive the agent.
        asked: the pod's creation was requested, with or without an answer.
        pod: as last seen; None before.
        uid: of the pod; empty before it was seen.
        gone: the pod was there, and is no more.
        unseen: the watch does not show the pod (any more); it may be there without its labels.
        grace_s: the grace of its requested deletion; None before.
        troubled_s: since when trouble keeps it from starting, on the lease clock.
        step: the progress of its launch; see ``PodLook``.
        step_s: when it last progressed, on the lease clock.
        deleted_s: when its deletion was first requested, on the lease clock.
        node_read: the node was read since the pod was evicted.
        reason_code: see LeaseReport.
        forgotten: the lease is no longer wanted; its pod must go.
        output_over: all its output was read.
        hopeless: how it ends once its pod is gone, since that could not start: end, word and
            message.
        launch: (seconds of the image, until its start, until it was ready) once it has started.
        devices: its accelerators, as the node or the agent assigned them.
        lacks: why an object that belongs to its pod cannot be made, as a word and a message; None
            if it lacks none.
        secret_made: the Secret with its secret variables was made, as far as this agent knows.
        service_due_s: when the Service of its gang is checked next, on the lease clock.
        pull_fault: why the last pull of its image failed; empty if none has.
        poke: set when there may be something to do.
    """

    name: str
    file: Path
    asked: bool = False
    pod: Mapping[str, Any] | None = None
    uid: str = ""
    gone: bool = False
    unseen: bool = False
    grace_s: int | None = None
    troubled_s: float | None = None
    step: int = -1
    step_s: float = field(default_factory=lease_clock_s)
    deleted_s: float | None = None
    node_read: bool = False
    reason_code: str = ""
    forgotten: bool = False
    output_over: bool = False
    hopeless: tuple[EndReason, str, str] | None = None
    launch: tuple[float | None, float, float | None] | None = None
    devices: tuple[str, ...] = ()
    lacks: tuple[str, str] | None = None
    secret_made: bool = False
    service_due_s: float = -math.inf
    pull_fault: str = ""
    poke: asyncio.Event = field(default_factory=asyncio.Event)
    _look: PodLook | None = field(default=None, init=False)

    @property
    def look(self) -> PodLook | None:
        """The observed state of the pod; None before it was seen."""
        return self._look

    @property
    def over(self) -> bool:
        """Whether no process of its pod runs any more."""
        look = self.look
        if look is None:
            return False
        return self.gone or look.over or (look.job_over and not look.others)

    @property
    def awaits_node(self) -> bool:
        """Whether the node must be read before the end of its pod is reported."""
        lost = self.hopeless is not None and self.hopeless[0] is EndReason.LOST
        return not self.node_read and (lost or taken_away(self.look, self.orders))

    def outlives(self, most_s: float) -> bool:
        """Return whether its pod still exists so long after its deletion and its grace."""
        if self.deleted_s is None or self.gone or self.pod is None or self.over:
            return False
        return lease_clock_s() - self.deleted_s > (self.grace_s or 0) + most_s

    @property
    def orders(self) -> Orders:
        """The agent's orders to the pod."""
        return Orders(
            noticed=self.tenant.leave_by_s is not None,
            terminated=self.terminated_s is not None,
            killed=self.kill_s is not None,
            unwanted=self.unwanted,
        )

    @property
    def found_file(self) -> Path:
        """The file with the figures from its output."""
        return self.file.with_suffix(".found")

    def forget(self) -> None:
        """Remove the files that had to survive the agent."""
        for file in (self.file, self.found_file):
            file.unlink(missing_ok=True)

    def save(self, *, needed: bool = True) -> None:
        """Store the state that the pod does not carry.

        Args:
            needed: whether a full disk is an error; otherwise this agent continues from memory.
        """
        self.tenant.deadline_s = self.deadline_s
        known = {
            "boot": self.boot,
            "deadline_s": self.deadline_s,
            "terminated_s": self.terminated_s,
            "unwanted": self.unwanted,
            "leave_by_s": self.tenant.leave_by_s,
            "steps_live": self.tenant.steps_live,
            "steps_done": self.tenant.steps_done,
            "uid": self.uid,
            "asked": self.asked,
            "lease": lease_annotations(self.lease)[LEASE_JSON],
        }
        try:
            write_json(self.file, known)
        except OSError as error:
            if needed or not is_full(error):
                raise

    def recall(self) -> None:
        """Read it back; without it the lease is assumed to hold for a short term."""
        self.advance(*found_before(self.found_file))
        data = Reader({})
        with contextlib.suppress(OSError, InputError):
            data = Reader.of(decode_json(self.file.read_bytes()))
        with contextlib.suppress(InputError):
            if data.data.get("boot") == self.boot:
                self.deadline_s = data.number("deadline_s")
                self.terminated_s = data.optional("terminated_s", data.number)
                self.unwanted = data.flag("unwanted")
                self.tenant.leave_by_s = data.optional("leave_by_s", data.number)
        self.advance(data.data.get("steps_live"), data.data.get("steps_done"))
        self.save()

    def see(self, pod: Mapping[str, Any], *, gone: bool = False) -> None:
        """Take in the pod as it is, or as it last was before it went."""
        self.pod, self.gone, self.asked = pod, gone, True
        self.uid = str((pod.get("metadata") or {}).get("uid") or "")
        look = self._look = self._with_pull_fault(look_at(pod))
        self.devices = look.devices or self.devices
        self._time_launch(look)
        if look.step > self.step:
            self.step, self.step_s = look.step, lease_clock_s()
        if not look.reason_code:
            self.troubled_s = None
        elif self.troubled_s is None:
            self.troubled_s = lease_clock_s()
        if self.end is None:
            self.reason_code, self.message = look.reason_code, look.message

    def _with_pull_fault(self, look: PodLook) -> PodLook:
        """Return the look at the pod, with the registry's answer to the last pull of its image.

        Kubelets before 1.32 say why a pull failed only until they wait for the next one.
        """
        if look.reason_code == "ErrImagePull" and look.message:
            self.pull_fault = look.message
        elif look.reason_code == "ImagePullBackOff" and self.pull_fault not in look.message:
            return replace(look, message=f"{look.message}: {self.pull_fault}".lstrip(": "))
        return look

    def _time_launch(self, look: PodLook) -> None:
        """Note how long the launch took, once it is over; a pod that has ended is not ready."""
        over = look.ready_s is not None or look.job_over
        if self.launch is None and look.launch_s is not None and over:
            self.launch = look.image_s, look.launch_s, look.ready_s

    def close(self, end: EndReason | None = None, message: str = "") -> None:
        """Note why the lease ended: as given, or as the pod shows."""
        if self.end is not None:
            return
        look = self.look
        self.take_watched()
        self.exit_code = None if look is None else look.exit_code
        self.count_clean_exit(self.exit_code)
        total = self.lease.total_steps
        if end is None and self.hopeless is not None and self.exit_code is None:
            end, self.reason_code, message = self.hopeless
        if end is None:
            end, message = end_of(
                look, self.orders, steps_done=self.tenant.steps_done, total_steps=total
            )
        self.end, self.message = end, message
        if end in {EndReason.COMPLETED, EndReason.RELEASED, EndReason.CANCELLED}:
            asked = self.terminated_s is not None or look is None or look.deleted
            self.note_leaving(self.exit_code, asked=asked)
            self.reason_code = LEFT_UNASKED if self.left_unasked else ""
        elif end is EndReason.OOM:
            self.reason_code = "OOMKilled"
        elif end is EndReason.LOST and is_node_fault(self.reason_code, message):
            self.exit_code = None  # the runtime's: nothing of the job has run
        if end is EndReason.COMPLETED and total is not None:
            self.tenant.steps_live = self.tenant.steps_done = total

    def start_fault(self, bounds: StartBounds) -> tuple[EndReason, str, str] | None:
        """Return how a lease ends whose pod cannot start: end, word and message.

        Args:
            bounds: how long the steps of its launch may take.

        Returns:
            None while it may start, or if it has started.
        """
        look, now_s = self.look, lease_clock_s()
        if look is None:
            return None
        waited_s = 0.0 if self.troubled_s is None else now_s - self.troubled_s
        if stalled := stalled_launch(look, waited_s=now_s - self.step_s, bounds=bounds):
            return EndReason.LOST, *stalled
        end = start_failure(look, waited_s=waited_s, most_s=bounds.trouble_s)
        if end is not None and self.lacks is not None:
            return EndReason.LOST, *self.lacks  # the job is not to blame for a missing object
        return None if end is None else (end, look.reason_code, look.message)

    def fail(self, error: Exception) -> None:
        """Delete the pod of a lease that the agent has failed at."""
        if not self.failure and self.end is None:
            super().fail(error)
            self.terminated_s = self.terminated_s or lease_clock_s()
            self.hopeless = EndReason.LOST, "", self.failure
        self.poke.set()

    def give_up(self) -> bool:
        """End a lease that the agent cannot end properly; its pod's guard holds the deadline."""
        if self.end is not None or lease_clock_s() <= self.deadline_s:
            return False
        self.end, self.message, self.output_over = EndReason.LOST, self.failure, True
        return True

    def runs(self) -> bool:
        """Return whether the job's container has been seen to run."""
        look = self.look
        return look is not None and (look.running or look.job_over)

    def report(self) -> LeaseReport:
        """Return the report for the scheduler."""
        self.take_watched()
        look = self.look
        image_s, launch_s, ready_s = self.launch or (None, None, None)
        word, message = self.reason_code, self.message
        if self.end is None and self.lacks is not None:
            word, message = self.lacks
        return LeaseReport(
            lease_id=self.lease.lease_id,
            token=self.lease.token,
            state=self.state(),
            reason=self.end,
            exit_code=self.exit_code if self.end is not None else None,
            steps_done=self.tenant.steps_done,
            steps_live=max(self.tenant.steps_live, self.tenant.steps_done),
            learning=self.tenant.learning,
            started_s=None if look is None else look.started_s,
            message=message,
            reason_code=word,
            image_s=image_s,
            launch_s=launch_s,
            ready_s=ready_s,
            devices=self.devices,
            progress_problem="" if self.watch is None else self.watch.problem,
            nonce=self.lease.nonce,
            job_id=self.lease.job_id,
        )


def record_of_pod(
    pod: Mapping[str, Any], *, folder: Path, boot: str, lease: DesiredLease | None = None
) -> PodRecord | None:
    """Return the record of a pod that an earlier agent has made; None if its lease is not known.

    Args:
        pod: the pod.
        folder: of the records.
        boot: id of the current boot.
        lease: of the pod; None if the pod's annotation has it.
    """
    metadata = pod.get("metadata") or {}
    try:
        text = (metadata.get("annotations") or {}).get(LEASE_JSON, "")
        lease = lease or lease_from_dict(decode_json(text))
    except InputError:
        return None
    tenant = tenant_of(lease, _variable(pod, "LEASEHOLD_SECRET"))
    record = PodRecord(
        lease=lease,
        tenant=tenant,
        name=str(metadata.get("name")),
        file=folder / f"{lease.lease_id}.json",
        boot=boot,
        deadline_s=lease_clock_s() + UNKNOWN_TERM_S + lease.grace_s,
        secret_made=True,  # if not, the kubelet will miss it
    )
    try:
        record.see(pod)
        record.recall()
    except Exception as error:  # noqa: BLE001 - the other pods must be found, too
        record.fail(error)
    return record


def asked_for(folder: Path, *, known: Container[int]) -> Iterator[tuple[Path, DesiredLease, str]]:
    """Yield file, lease and pod's uid of leases with pods that an earlier agent requested.

    The uid is empty if that agent has seen no answer. Leases that are ``known`` are left out. The
    files of leases without a requested pod are removed.
    """
    for file in sorted(folder.glob("*.json")):
        try:
            data = Reader.of(decode_json(file.read_bytes()))
            lease = lease_from_dict(decode_json(data.text("lease", longest=FILE_BYTES)))
            uid = data.maybe("uid", longest=LONGEST_NAME)
            asked = bool(uid) or ("asked" in data.data and data.flag("asked"))
        except (OSError, InputError):
            continue
        if lease.lease_id in known:
            continue
        if asked:
            yield file, lease, uid
        else:
            file.unlink(missing_ok=True)


def records_without_pods(folder: Path, *, known: Container[int], boot: str) -> Iterator[PodRecord]:
    """Yield leases with pods that an earlier agent requested, and that are gone.

    They have ended, and must not count as leases that were never started: a pod may have run and
    gone while there was no agent. How they ended is for the caller to find out.
    """
    for file, lease, uid in asked_for(folder, known=known):
        record = PodRecord(
            lease=lease,
            tenant=tenant_of(lease, ""),
            name=pod_name(lease.job_id, lease.attempt, lease.rank),
            file=file,
            boot=boot,
            deadline_s=lease_clock_s(),
            uid=uid,
            asked=True,
            output_over=True,
        )
        record.recall()
        yield record


def _variable(pod: Mapping[str, Any], name: str) -> str:
    for container in (pod.get("spec") or {}).get("containers") or []:
        if container.get("name") == CONTAINER:
            for variable in container.get("env") or []:
                if variable.get("name") == name:
                    return str(variable.get("value") or "")
    return ""
