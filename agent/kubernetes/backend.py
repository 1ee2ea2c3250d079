"""The Kubernetes backend: the leases of one node as pods.

The loop's actions are only noted. A task per lease brings the pod in line with them, again and
again until it is (``_tend``). The state of the pods comes from a watch alone. So nothing depends on
the answer to a request: the watch or the next request makes up for a lost one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import secrets
import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent.clock import lease_clock_s
from agent.folders import boot_id
from agent.isolation import IsolatedBackend, restart_on_error
from agent.kubernetes.client import (
    AdmissionRefusedError,
    KubernetesError,
    KubernetesUnreachableError,
    PermissionDeniedError,
)
from agent.kubernetes.names import lease_of, pod_name, uid_of
from agent.kubernetes.node.image_pulls import ImagePuller
from agent.kubernetes.node.watch import NodeWatch
from agent.kubernetes.pods.code import check_awaited, the_code
from agent.kubernetes.pods.ends import StartBounds
from agent.kubernetes.pods.exec import PodCommand
from agent.kubernetes.pods.history import PodHistory
from agent.kubernetes.pods.logs import read_output
from agent.kubernetes.pods.pods import PodPlace, build_pod
from agent.kubernetes.pods.record import PodRecord, record_of_pod, records_without_pods
from agent.kubernetes.pods.requests import PodRequests
from agent.kubernetes.pods.security import check_namespace
from agent.kubernetes.pods.steps import PodSteps
from agent.kubernetes.pods.watch import PodWatch
from agent.lease_record import tenant_of
from agent.logs.log_files import SENT, make_log_folder
from agent.reconcile import Forget, Kill, Notice, Refuse, Renew, Start, Terminate
from scheduler.domain.lease_life import EndReason
from scheduler.errors import InputError
from scheduler.protocol.bounds import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from agent.backend import Command
    from agent.endpoint.endpoint import Endpoint
    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.node.workers import NodeInventory
    from agent.kubernetes.pods.pods import PodSettings
    from agent.link.port import Link
    from agent.reconcile import Action, HeldLease, WantedLease
    from scheduler.domain.lease_life import LeasePhase
    from scheduler.protocol.desired import DesiredExec, DesiredImage, DesiredLease
    from scheduler.protocol.reports import LeaseReport

_log = logging.getLogger("leasehold.agent")

#: Longest wait of a task that has nothing to do, and between attempts that fail.
IDLE_S: Final = 5.0
RETRY_MOST_S: Final = 5.0
#: How long a forgotten lease's output may still be read before its pod goes.
LAST_OUTPUT_S: Final = 5.0
#: A pod that outlives its deletion and grace by this much keeps its workers out of service.
STUCK_S: Final = 30.0


class KubernetesBackend(IsolatedBackend[PodRecord]):
    """Holds the leases of one node as pods.

    Args:
        node: the node's name.
        client: the way to the API server.
        inventory: the node's workers.
        endpoint: the endpoint for pods' reports.
        on_change: called when there is something new to do or to report.
        state_dir: private folder of this agent.
        settings: of the pods.
        bounds: how long the steps of a launch may take.
        force_after_s: how long a pod may survive its deletion before it is removed without its
            node's confirmation, if the job allows that.
        node_every_s: between two reads of the Node object.
        log_leases: the number of leases with kept output.
    """

    def __init__(
        self,
        *,
        node: str,
        client: KubernetesClient,
        inventory: NodeInventory,
        endpoint: Endpoint,
        on_change: Callable[[], None],
        state_dir: Path,
        settings: PodSettings,
        bounds: StartBounds | None = None,
        force_after_s: float = 300.0,
        node_every_s: float = 10.0,
        log_leases: int = 1000,
    ) -> None:
        self._folder, self.logs_dir = state_dir / "pods", state_dir / "logs"
        for folder in (self._folder, self.logs_dir):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._node, self._client, self._inventory = node, client, inventory
        self._endpoint, self._on_change, self._settings = endpoint, on_change, settings
        self._bounds = bounds or StartBounds()
        self._log_leases = log_leases
        self._boot = boot_id()
        self._records: dict[int, PodRecord] = {}
        #: Dropped leases with pods that are being deleted.
        self._leaving: dict[int, PodRecord] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._troubles: dict[str, str] = {}
        self._history = PodHistory(client=client, node=node, settings=settings, folder=state_dir)
        self._pods = PodWatch(
            client=client,
            namespace=settings.namespace,
            labels=self._history.labels,
            on_list=self._list,
            on_event=self._event,
            on_version=self._history.note,
            on_trouble=self._note,
        )
        self._steps = PodSteps(logs_dir=self.logs_dir, on_change=on_change)
        self._requests = PodRequests(
            client=client,
            node=node,
            settings=settings,
            pod_of=self._pod_of,
            see=lambda record, pod, gone: self._see(record, pod, gone=gone),
            note=self._note,
            on_change=on_change,
            trouble_s=self._bounds.trouble_s,
            force_after_s=force_after_s,
        )
        self._watch = NodeWatch(
            node=node,
            client=client,
            inventory=inventory,
            on_change=on_change,
            on_trouble=self._note,
            every_s=node_every_s,
            counted=settings.foreign_pods,
        )
        self._puller = ImagePuller(
            client=client,
            node=node,
            node_object=lambda: inventory.node,
            hostname=lambda: inventory.hostname,
            settings=settings,
        )

    def bring_code(self, link: Link) -> bool:
        """Bring code into pods when they ask for it."""
        self._link = link
        return True

    async def open(self) -> tuple[HeldLease, ...]:
        """Find the node's workers and the pods that an earlier agent has left, and adopt them."""
        failures = 0
        while True:
            try:
                await self._watch.read()
                await self._pods.list()
                for pod, lease in await self._requests.unlisted(self._folder, self._records):
                    self._adopt(pod, lease)
                    self._records[lease.lease_id].unseen = True
                await check_namespace(self._client, self._settings)
                break
            except KubernetesError as error:
                failures += 1
                wait_s = min(0.5 * 2 ** min(failures, 10), 30.0)
                _log.warning("cannot begin yet: %s; again in %.0f s", error, wait_s)
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
        gone = tuple(records_without_pods(self._folder, known=self._records, boot=self._boot))
        await self._history.replay(gone)
        for record in gone:
            record.close()
            _log.info("pod %s is gone: %s", record.name, record.message or record.end)
            self._records[record.lease.lease_id] = record
        await self._watch.list_others()
        return self.held()

    async def run(self) -> None:
        """Bring pods in line with their leases, and watch their state."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for work in (self._pods.run, self._watch.run, self._puller.run, self._steps.run):
                tasks.create_task(restart_on_error(work))
            for record in (*self._records.values(), *self._leaving.values()):
                self._begin(record)

    def held(self) -> tuple[HeldLease, ...]:
        """Return every lease on this node, ended ones included."""
        for record in self._records.values():
            self._guarded(record, partial(self._judge, record))
        return tuple(record.held() for _, record in sorted(self._records.items()))

    def reports(self) -> tuple[LeaseReport, ...]:
        """Return every lease for the scheduler, ascending by id."""
        return tuple(record.safe_report() for _, record in sorted(self._records.items()))

    def states(self) -> dict[int, LeasePhase]:
        """Return the state of each lease's pod."""
        return {lease_id: record.state() for lease_id, record in self._records.items()}

    def running(self) -> set[int]:
        """Return the leases with output that is not read to its end."""
        everything = self._records | self._leaving
        return {lease_id for lease_id, record in everything.items() if not record.output_over}

    def mark_delivered(self, lease_ids: Collection[int], *, term: int) -> None:
        """Note that a report of a term has told the scheduler how these leases ended."""
        for lease_id in lease_ids:
            if lease_id in self._records:
                self._records[lease_id].delivered_term = term

    def prepare(self, images: tuple[DesiredImage, ...]) -> None:
        """Note images that the node may soon need."""
        self._puller.want(images)

    def problems(self, inventory: Mapping[int, str]) -> dict[int, str]:  # noqa: ARG002 - it may be old
        """Return why workers cannot be used: by the node, and by pods that do not go away.

        Both are read together with the ends of leases.
        """
        alive = [record for record in self._records.values() if record.end is None]
        bound = (r for r in alive if r.look is not None and r.look.bound)
        self._inventory.hold(
            {worker for record in alive for worker in record.lease.workers},
            bound={worker for record in bound for worker in record.lease.workers},
        )
        found = self._inventory.problems()
        for record in (*alive, *self._leaving.values()):
            if record.outlives(STUCK_S):
                why = f"pod {record.name} does not go away; see its node's kubelet"
                found |= dict.fromkeys(record.lease.workers, why)
        return found

    async def run_beside(self, order: DesiredExec) -> Command:
        """Start a command in the pod of a job.

        Raises:
            InputError: the job has no pod on this node, or the agent may not.
        """
        record = self._records.get(order.lease_id)
        look = None if record is None else record.look
        if record is None or record.end is not None or look is None or not look.running:
            raise InputError("the job does not run on this node now; try again when it does")
        if record.grace_s is not None:
            raise InputError("the job is being stopped on this node")
        return await PodCommand.begin(
            self._client,
            self._settings.namespace,
            record.name,
            order.command,
            reads=bool(order.stdin),
            stopping=lambda: (
                record.end is not None
                or record.grace_s is not None
                or record.gone
                or record.look is None
                or not record.look.running
            ),
        )

    def remarks(self) -> tuple[str, ...]:
        """Return the problems between this agent and the API server."""
        return tuple(self._troubles[key] for key in sorted(self._troubles))

    def _perform(self, action: Action) -> None:
        if isinstance(action, Start):
            self._start(action.wanted)
        elif isinstance(action, Refuse):
            self._refuse(action.wanted, EndReason.RELEASED, action.message)
        elif isinstance(action, Forget):
            self._forget(action.lease_id)
        else:
            self._order(self._records[action.lease_id], action)

    def _order(self, record: PodRecord, action: Renew | Notice | Terminate | Kill) -> None:
        now_s = lease_clock_s()
        if record.end is not None:
            return
        if isinstance(action, Renew):
            record.deadline_s = action.deadline_s
            if action.secret_env and not record.runs():  # an adopted pod may still need them
                record.lease = replace(record.lease, secret_env=action.secret_env)
        elif isinstance(action, Notice):
            self._endpoint.notify(record.lease.lease_id, action.by_s if action.on else None)
        elif isinstance(action, Terminate):
            record.terminated_s, record.unwanted = now_s, action.unwanted
            self._endpoint.notify(record.lease.lease_id, now_s)
        elif record.kill_s is None:
            record.kill_s = now_s
        else:
            return
        record.save(needed=False)
        record.poke.set()

    def _start(self, wanted: WantedLease) -> None:
        lease = wanted.lease
        record = self._new_record(wanted)
        try:
            self._pod_of(record)
        except InputError as error:
            record.output_over = True
            no_worker = any(not 0 <= w < len(self._inventory.workers) for w in lease.workers)
            record.close(EndReason.LOST if no_worker else EndReason.FAILED, str(error))
            self._on_change()

    def _refuse(self, wanted: WantedLease, end: EndReason, message: str) -> None:
        record = self._new_record(wanted)
        record.output_over = True
        record.close(end, message)
        self._on_change()

    def _new_record(self, wanted: WantedLease) -> PodRecord:
        record = self._remember(wanted)
        self._begin(record)
        record.save()
        return record

    def _remember(self, wanted: WantedLease) -> PodRecord:
        lease = wanted.lease
        record = PodRecord(
            lease=lease,
            tenant=tenant_of(lease, secrets.token_urlsafe(24)),
            name=pod_name(lease.job_id, lease.attempt, lease.rank),
            file=self._folder / f"{lease.lease_id}.json",
            boot=self._boot,
            deadline_s=wanted.deadline_s,
        )
        # Created for a lease without a pod, too: that nothing was written is reported like output.
        with contextlib.suppress(OSError):
            make_log_folder(self.logs_dir, lease.lease_id, lease.nonce)
        self._take_in(record)
        return record

    def _take_in(self, record: PodRecord) -> None:
        self._records[record.lease.lease_id] = record
        self._steps.begin(record)
        if record.tenant.secret:
            if record.lease.upload:
                record.tenant.code = partial(self._code_of, record)
            self._endpoint.admit(record.tenant)

    def _forget(self, lease_id: int) -> None:
        record = self._records.pop(lease_id)
        self._endpoint.dismiss(lease_id)
        self._steps.end(lease_id)
        record.forgotten = True
        self._leaving[lease_id] = record
        record.poke.set()
        logs = (path for path in self.logs_dir.iterdir() if path.name.isdecimal())
        kept = sorted(logs, key=lambda path: int(path.name))
        for path in kept[: -self._log_leases]:
            if (path / SENT).exists() or len(kept) > 2 * self._log_leases:
                shutil.rmtree(path, ignore_errors=True)

    def _pod_of(self, record: PodRecord) -> dict[str, Any]:
        workers = self._inventory.pick(record.lease.workers)
        record.devices = tuple(w.device for w in workers if w.resource and w.sharing == "visible")
        place = PodPlace(
            node=self._node,
            hostname=self._inventory.hostname,
            workers=workers,
            deadline_s=record.deadline_s,
        )
        return build_pod(record.lease, place, secret=record.tenant.secret, settings=self._settings)

    async def _code_of(self, record: PodRecord) -> bytes:
        """Return the code of a lease for its pod; if it cannot be had, the lease ends.

        Raises:
            InputError: the code cannot be had.
            OSError: the scheduler cannot be reached.
        """
        check_awaited(record)
        try:
            return the_code(await self._link.code(record.lease.lease_id), record.lease)
        except InputError as error:
            why = clean_text(f"its uploaded code cannot be fetched: {error}")
            self._give_up(record, EndReason.FAILED, "", why)
            raise

    # -- events of the watches ---------------------------------------------------------------------

    def _list(self, pods: list[dict[str, Any]]) -> None:
        """Take in all pods of this node with our labels."""
        present = {uid_of(pod) for pod in pods}
        for record in (*self._records.values(), *self._leaving.values()):
            if record.pod is not None and record.uid not in present and not record.gone:
                self._guarded(record, partial(self._miss, record, record.pod))
        for pod in pods:
            self._event("MODIFIED", pod)

    def _event(self, kind: str, pod: Mapping[str, Any]) -> None:
        record = self._find(pod)
        if record is None:
            if kind != "DELETED":
                self._adopt(pod)
            return
        if record.uid in {"", uid_of(pod)}:
            see = self._miss if kind == "DELETED" else partial(self._see, gone=False)
            self._guarded(record, partial(see, record, pod))
            record.unseen |= lease_of(pod)[0] != record.lease.lease_id and not record.gone

    def _find(self, pod: Mapping[str, Any]) -> PodRecord | None:
        lease_id, _ = lease_of(pod)
        found = self._records.get(lease_id) or self._leaving.get(lease_id)
        if found is not None:
            return found
        every = (*self._records.values(), *self._leaving.values())
        return next((one for one in every if one.uid and one.uid == uid_of(pod)), None)

    def _miss(self, record: PodRecord, pod: Mapping[str, Any]) -> None:
        """Take in a pod that the watch shows no more; if it may still run, ask for it by name.

        The watch also drops a pod that loses one of our labels, and that pod still has its workers.
        """
        self._see(record, pod, gone=record.over)
        record.unseen = not record.gone

    def _see(self, record: PodRecord, pod: Mapping[str, Any], *, gone: bool) -> None:
        before, new = (record.state(), record.reason_code), not record.uid
        record.see(pod, gone=gone)
        if new:
            record.save()  # the next agent must not make it again
        self._judge(record)
        record.poke.set()
        if before != (record.state(), record.reason_code):
            self._on_change()

    def _adopt(self, pod: Mapping[str, Any], lease: DesiredLease | None = None) -> None:
        """Hold a pod that this agent does not know: the loop ends it if no lease wants it."""
        record = record_of_pod(pod, folder=self._folder, boot=self._boot, lease=lease)
        if record is None:
            name = (pod.get("metadata") or {}).get("name")
            _log.warning("pod %s has our labels but names no lease; it is deleted", name)
            self._spawn(self._sweep(pod))
            return
        _log.info("adopted pod %s of lease %d", record.name, record.lease.lease_id)
        self._take_in(record)
        self._guarded(record, partial(self._judge, record))
        self._begin(record)
        self._on_change()

    async def _sweep(self, pod: Mapping[str, Any]) -> None:
        name = str((pod.get("metadata") or {}).get("name"))
        with contextlib.suppress(KubernetesError):  # the next list brings it up again
            uid = uid_of(pod)
            await self._client.delete_pod(self._settings.namespace, name, uid=uid, grace_s=30)

    def _note(self, what: str, trouble: str) -> None:
        """Note a problem of a part of the work; an empty text: it has none (any more)."""
        if trouble == self._troubles.get(what, ""):
            return
        if trouble:
            self._troubles[what] = trouble
            _log.warning("%s", trouble)
        else:
            self._troubles.pop(what)

    # -- one lease ---------------------------------------------------------------------------------

    def _judge(self, record: PodRecord) -> None:
        """Find out whether a lease has ended."""
        if record.end is not None:
            return
        if record.over:
            if record.awaits_node:
                record.poke.set()
            elif self._steps.all_in(record):
                record.close()
                self._on_change()
            return
        if fault := record.start_fault(self._bounds):
            self._give_up(record, *fault)

    def _give_up(self, record: PodRecord, end: EndReason, word: str, message: str) -> None:
        """End a lease that cannot start, once its pod is gone and its workers are free."""
        if record.orders.terminated:
            return
        record.terminated_s = lease_clock_s()
        record.hopeless = end, word, f"{word}: {message}".strip(": ")
        record.poke.set()
        self._on_change()

    def _begin(self, record: PodRecord) -> None:
        if self._tasks is not None:
            self._spawn(self._tend(record))
            folder = self.logs_dir / str(record.lease.lease_id)
            self._spawn(read_output(record, self._client, self._settings.namespace, folder))

    def _spawn(self, work: Any) -> None:
        if self._tasks is None:
            work.close()
        else:
            self._tasks.create_task(work)

    async def _tend(self, record: PodRecord) -> None:
        """Bring a lease's pod in line with its lease, until both are gone."""
        failures = 0
        forgotten_s = math.inf
        while True:
            record.poke.clear()
            wait_s = IDLE_S
            if record.forgotten:
                forgotten_s = min(forgotten_s, lease_clock_s())
            try:
                if record.unseen:
                    await self._requests.find(record)
                    record.poke.clear()  # set by what the request found, which is handled now
                if await self._step(record, forgotten_s=forgotten_s):
                    break
                failures = 0
            except KubernetesError as error:
                failures += 1
                self._take_error(record, error)
                wait_s = min(0.25 * 2 ** min(failures, 8), RETRY_MOST_S)
                wait_s *= random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
                await asyncio.sleep(wait_s)
                continue
            except Exception as error:  # noqa: BLE001 - the other leases continue
                self._fail(record, error)
                if record.give_up():
                    self._on_change()
                await asyncio.sleep(0.5)
                continue
            if record.forgotten or record.terminated_s is not None or record.kill_s is not None:
                wait_s = 0.5
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await record.poke.wait()
        self._leaving.pop(record.lease.lease_id, None)
        record.forget()

    async def _step(self, record: PodRecord, *, forgotten_s: float) -> bool:
        """Make the next request for a lease, if one is needed; return whether it is finished."""
        if record.forgotten:
            waited_s = lease_clock_s() - forgotten_s
            if record.pod is None or record.gone:
                return True
            if record.output_over or waited_s > LAST_OUTPUT_S:
                await self._requests.delete(record, 1)
            return False
        if record.end is None and record.over and record.awaits_node:
            # An operator that drains a node cordons it first, and evicts then. If the end were
            # reported before the cordon, the next pod would be granted the same node.
            await self._watch.look()
            record.node_read = True
        if not record.failure:
            self._judge(record)
        if record.end is not None:
            return False
        if record.terminated_s is not None or record.kill_s is not None:
            await self._requests.end(record)
        elif record.look is not None and record.look.job_over and record.look.others:
            await self._requests.delete(record)
        else:
            await self._requests.make(record)
        return False

    def _take_error(self, record: PodRecord, error: KubernetesError) -> None:
        """Note why a request failed; end a lease that cannot start because of it."""
        self._note("create", str(error))
        if record.pod is not None or record.end is not None:
            return
        word = error.reason or type(error).__name__.removesuffix("Error")
        if isinstance(error, KubernetesUnreachableError):
            word = "ApiUnavailable"
        record.reason_code, record.message = word, str(error)
        if record.troubled_s is None:
            record.troubled_s = lease_clock_s()
        waited_s = lease_clock_s() - record.troubled_s
        if isinstance(error, AdmissionRefusedError):
            record.output_over = True
            record.close(EndReason.FAILED, str(error))
        elif waited_s > self._bounds.trouble_s:
            if isinstance(error, KubernetesUnreachableError):
                # The pod may exist all the same: the lease ends when the server reports the pods.
                self._give_up(record, EndReason.LOST, word, str(error))
            else:
                record.output_over = True
                record.close(EndReason.LOST, str(error))
        self._on_change()
        if isinstance(error, PermissionDeniedError):
            _log.error("lease %d: %s; see the Role of this agent", record.lease.lease_id, error)
