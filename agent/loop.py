"""The agent's loop: fetch the desired set, reconcile, report the state."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.disk import AGAIN_BYTES, PROBE_BYTES
from agent.execs import ExecRunner
from agent.folders import private_folder
from agent.gpus.gpu_use import GpuMeter
from agent.gpus.inventory import Inventory
from agent.logs.log_upload import LogUploader, UploadSettings
from agent.machine import Machine
from agent.reconcile import (
    DesiredView,
    Notice,
    Refuse,
    Renew,
    Start,
    Terminate,
    accept_desired,
    decide_actions,
    view_of_adopted,
    wake_at,
)
from agent.settings import AgentSettings
from agent.trees import TREES, Trees
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import InputError, NotPermittedError
from scheduler.protocol.reading import Reader
from scheduler.protocol.reports import LEAVING, LeaseReport, NodeReport, WorkerReport, instance_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from agent.backend import MakeBackend, Workers
    from agent.link.port import Link
    from agent.reconcile import Action, HeldLease

#: Between two checks of a lease while its processes are starting.
STARTING_TICK_S = 0.05
#: The wait after no more files could be opened.
AGAIN_S: Final = 1.0
#: How long an agent that leaves with its jobs stays to send the rest of their output.
LAST_OUTPUT_S = 10.0

_log = logging.getLogger("leasehold.agent")


class Agent:
    """One node's agent. Cancelling ``run`` leaves the jobs running for the next agent.

    Args:
        node: the node's name.
        link: the way to the scheduler.
        inventory: the node's workers.
        state_dir: private folder, kept over restarts.
        make_backend: makes the backend from the job-facing endpoint and a callback for news.
        settings: times of the loop.
        upload: rate and times of the upload of output.
        listen: (host, port) where jobs reach the endpoint besides its socket; None for the socket
            alone.
        machine: clocks, chance and folder; by default the real machine's.
        stalls: returns how often the event loop stood still for over a second so far.
    """

    def __init__(
        self,
        *,
        node: str,
        link: Link,
        inventory: Workers,
        state_dir: Path,
        make_backend: MakeBackend,
        settings: AgentSettings | None = None,
        upload: UploadSettings | None = None,
        listen: tuple[str, int] | None = None,
        machine: Machine | None = None,
        stalls: Callable[[], int] = int,
    ) -> None:
        private_folder(state_dir, marker="lock")
        self._machine = machine = machine or Machine()
        self._now_s = machine.lease_clock_s
        self._node = node
        self._link = link
        self._inventory = inventory
        self._settings = settings or AgentSettings()
        self._stalls = stalls
        self._news = asyncio.Event()
        self._to_report = asyncio.Event()
        self._refused_s: float | None = None  # when the token was refused, and that was logged
        self._ended = asyncio.Event()  # a lease ended, and the scheduler does not know yet
        self._memory = machine.memory(state_dir)
        self._endpoint = machine.endpoint(state_dir / "jobs.sock", listen=listen)
        self._backend = make_backend(self._endpoint, self._news.set)
        #: None if the backend brings code to its jobs itself.
        self._trees = (
            None
            if self._backend.bring_code(link)
            # A plugin for the release before has no owner_of.
            else Trees(
                link,
                state_dir / TREES,
                self._news.set,
                owner_of=getattr(self._backend, "owner_of", lambda _lease: None),
            )
        )
        self._execs = ExecRunner(link, self._backend.run_beside)
        self._view = DesiredView()
        self._place = self._backend.place()
        self._serves = asyncio.Event()  # the scheduler has taken a report
        self._incarnation = machine.wall_s()
        self._sequence = 0
        self._problems = dict(inventory.missing) if isinstance(inventory, Inventory) else {}
        self._told_problems: dict[int, str] = {}
        self._gpus = _meter(inventory)
        self._remark = ""
        self._disk = ""  # why nothing can be written; empty while it can
        self._crashed = False
        self._stopping = False
        self._uploader = LogUploader(
            link=link,
            logs_dir=self._backend.logs_dir,
            running=self._backend.running,
            settings=upload or UploadSettings(),
            chance=machine.chance,
        )

    async def run(self, *, on_open: Callable[[], None] = lambda: None) -> None:
        """Serve until cancelled.

        Args:
            on_open: called once the state folder is this agent's and jobs can reach it.

        Raises:
            InputError: another agent is using the state folder.
            NotPermittedError: the scheduler refuses the token at the first contact, and the agent
                holds no job that a retry might serve; in a group.
        """
        lock = self._memory.open_lock()
        if lock is None:
            raise InputError(
                f"another agent is using {self._memory.path}; stop it or choose another folder"
            )
        try:
            if self._trees is not None:
                self._trees.clear()
            self._recall()
            self._note_down(self._view)
            self._view = view_of_adopted(self._view, await self._backend.open())
            await self._endpoint.open()
            on_open()
            self._to_report.set()  # a scheduler that does not know this node learns of it now
            async with asyncio.TaskGroup() as tasks:
                for work in (
                    *(
                        self._ask,
                        self._act,
                        self._tell,
                        self._check,
                        self._watch_disk,
                        self._measure,
                    ),
                    *(self._uploader.run, self._backend.run),
                ):
                    tasks.create_task(_endure(work))
        except asyncio.CancelledError:
            self._note_down(self._view, stopped=True)
            raise
        finally:
            await self._execs.close()
            await self._endpoint.close()
            self._machine.close_lock(lock)

    async def _ask(self) -> None:
        await self._serves.wait()
        failures = 0
        while True:
            sent_s = self._now_s()
            try:
                desired = await self._link.desired(
                    after=self._newest(), instance=instance_of(self._place, self._incarnation)
                )
            except (OSError, InputError) as error:
                failures += 1
                await self._wait_after(failures, error)
                continue
            failures = 0
            self._note_accepted(sent_s)
            view = accept_desired(self._view, desired, sent_s=sent_s)
            if (view.term, view.revision) != (self._view.term, self._view.revision):
                self._note_down(view)
            if view.term != self._view.term and any(h.ended for h in self._backend.held()):
                self._to_report.set()  # a new leader may not know these ends
            self._view = view
            self._backend.prepare(desired.images)
            self._execs.take(desired.execs)
            self._news.set()

    async def _act(self) -> None:
        states: dict[int, LeasePhase] = {}
        while True:
            self._news.clear()
            held = self._backend.held()
            for action in self._with_code(self._decide(held), held):
                self._backend.perform(action)
                if isinstance(action, Start | Refuse):
                    self._uploader.begin(action.wanted.lease.lease_id)
                self._to_report.set()
            if self._workers_problems().keys() != self._told_problems.keys():
                self._to_report.set()
            before, states = states, self._backend.states()
            if states != before:
                self._to_report.set()
            if any(s is LeasePhase.ENDED and before.get(i) is not s for i, s in states.items()):
                self._ended.set()
            await _wait(self._news, self._sleep_s(states))

    def _decide(self, held: Sequence[HeldLease]) -> list[Action]:
        margin_s = self._settings.margin_s
        actions = decide_actions(self._view, held, now_s=self._now_s(), margin_s=margin_s)
        if not self._stopping:
            return self._as_disk_allows(actions)
        told = {a.lease_id for a in actions if isinstance(a, Terminate)}
        alive = {h.lease_id for h in held if not h.ended and h.terminated_s is None}
        return [
            *(Terminate(lease_id=lease_id, unwanted=False) for lease_id in sorted(alive - told)),
            *(Refuse(wanted=a.wanted, message=LEAVING) for a in actions if isinstance(a, Start)),
            *(a for a in actions if not isinstance(a, Start | Renew | Notice)),
        ]

    def _with_code(self, actions: Sequence[Action], held: Sequence[HeldLease]) -> list[Action]:
        """Start leases only when their code is here."""
        if self._trees is None:
            return list(actions)
        uploads = [a for a in actions if isinstance(a, Start) and a.wanted.lease.upload]
        coming = self._view.wanted.keys() - {lease.lease_id for lease in held}
        self._trees.keep(coming)
        if not uploads:
            return list(actions)
        faults = {a.wanted.lease.lease_id: self._trees.fault(a.wanted.lease) for a in uploads}
        found: list[Action] = []
        for action in actions:
            if isinstance(action, Start) and action.wanted.lease.upload:
                fault = faults[action.wanted.lease.lease_id]
                if fault is None:
                    continue
                found.append(replace(action, fault=fault))
            else:
                found.append(action)
        return found

    def _as_disk_allows(self, actions: Sequence[Action]) -> list[Action]:
        """Start no lease that could not be stored."""
        if not self._disk and any(isinstance(action, Start) for action in actions):
            self._note_disk(self._machine.disk_problem(self._memory.path))
        if not self._disk:
            return list(actions)
        return [
            Refuse(wanted=a.wanted, message=self._disk) if isinstance(a, Start) else a
            for a in actions
        ]

    def _sleep_s(self, states: Mapping[int, LeasePhase]) -> float:
        """Return how long the loop may wait without news."""
        settings = self._settings
        wake_s = wake_at(self._view, self._backend.held(), margin_s=settings.margin_s)
        starting = LeasePhase.STARTING in states.values()
        most_s = min(STARTING_TICK_S, settings.tick_s) if starting else settings.tick_s
        return min(max(wake_s - self._now_s(), 0.02), most_s)

    async def _tell(self) -> None:
        settings, failures, accepted = self._settings, 0, False
        last: NodeReport | None = None
        last_s = 0.0
        while True:
            left_s = settings.report_every_s - (self._now_s() - last_s)
            await _wait(self._to_report, min(settings.progress_every_s, max(left_s, 0.0)))
            self._ended.clear()
            report = self._report()
            quiet = last is not None and report.leases == last.leases
            recent = self._now_s() - last_s < settings.report_every_s
            if quiet and recent and not self._to_report.is_set():
                continue
            self._to_report.clear()
            self._told_problems = {w.index: w.problem for w in report.workers if w.problem}
            sent_s = self._now_s()
            try:
                await self._link.report(report)
            except (OSError, InputError) as error:
                failures += 1
                self._end_if_refused(error, accepted=accepted)
                self._to_report.set()
                await self._wait_after(failures, error)
                continue
            failures, accepted = 0, True
            self._serves.set()
            self._note_accepted(sent_s)
            last, last_s = report, self._now_s()
            ended = {r.lease_id for r in report.leases if r.state is LeasePhase.ENDED}
            self._backend.mark_delivered(ended, term=report.term)
            if ended:
                self._news.set()
            await _wait(self._ended, settings.report_least_s)

    async def stop_jobs(self, *, most_s: float = 60.0) -> None:
        """Start no more leases, make every job leave as at its lease's end, and report that.

        Args:
            most_s: returns after this long even if a job is left or the scheduler does not know.
        """
        self._stopping = True
        self._news.set()
        end_s = self._now_s() + most_s
        while self._now_s() < end_s:
            held, term = self._backend.held(), self._view.term
            if all(lease.ended and lease.delivered_term == term for lease in held):
                break
            await asyncio.sleep(0.05)
        # No other agent sends the rest of their output, unless one follows on this node.
        end_s = min(end_s, self._now_s() + LAST_OUTPUT_S)
        while self._uploader.pending() and self._now_s() < end_s:  # noqa: ASYNC110 - files have no events
            await asyncio.sleep(0.05)

    async def _check(self) -> None:
        while True:
            try:
                problems = await self._look_at_workers()
            except Exception:  # noqa: BLE001 - of the driver's library: the jobs run on
                _log.exception("the workers could not be asked how they are")
                problems = self._problems
            if problems != self._problems:
                self._problems = problems
                self._to_report.set()
            await asyncio.sleep(self._settings.health_every_s)

    async def _measure(self) -> None:
        """Sample the use of GPUs; the next report has the result."""
        while self._gpus is not None:
            held = {h.lease_id: h.workers for h in self._backend.held() if not h.ended}
            before = self._gpus.foreign.keys()
            try:
                await asyncio.to_thread(self._gpus.look, held, self._now_s())
            except Exception:  # noqa: BLE001 - of the driver's library: the jobs run on
                _log.exception("the GPUs could not be asked how busy they are")
            if self._gpus.foreign.keys() != before:
                self._to_report.set()
            await asyncio.sleep(self._settings.gpu_every_s)

    async def _watch_disk(self) -> None:
        """Notice early that the disk is full, and that there is room again."""
        while True:
            before = self._disk
            size = AGAIN_BYTES if before else PROBE_BYTES
            folder = self._memory.path
            problem = await asyncio.to_thread(
                self._machine.disk_problem, folder, size=size, flush=True
            )
            if self._disk != before:  # a new lease has checked meanwhile: its result is newer
                continue
            self._note_disk(problem)
            await asyncio.sleep(self._settings.disk_every_s)

    def _note_disk(self, problem: str) -> None:
        if problem == self._disk:
            return
        if problem:
            _log.error("%s; no lease is begun until that is done", problem)
        else:
            _log.info("the agent can write in %s again", self._memory.path)
        self._disk = problem
        self._to_report.set()

    async def _look_at_workers(self) -> dict[int, str]:
        """Ask the workers for their health, and note a remark if a driver gives no answer."""
        looking = asyncio.ensure_future(asyncio.to_thread(self._inventory.problems))
        most_s = self._settings.health_most_s
        await asyncio.wait({looking}, timeout=most_s)
        if not looking.done():
            self._remark = f"the workers' driver has given no answer for {most_s:g} s"
            _log.warning("%s; the last known state of the workers is reported", self._remark)
            self._to_report.set()
        found = await looking
        self._remark = ""
        return found

    def _end_if_refused(self, error: Exception, *, accepted: bool) -> None:
        """End an agent that was never admitted: its setup is wrong, and an operator is watching.

        An agent that was admitted, or that found jobs here, retries: its token may be fixed in
        time.

        Raises:
            NotPermittedError: the error is such a refusal.
        """
        if isinstance(error, PermissionError) and not accepted and not self._backend.held():
            raise NotPermittedError(str(error)) from error

    def _note_refused(self, error: Exception) -> None:
        """Log once, until the token is accepted again, how an operator can fix a refused token."""
        if self._refused_s is not None:
            return
        self._refused_s = self._now_s()
        _log.error(
            "%s. The token was revoked or has run out, or node '%s' was enrolled again, on another "
            "machine perhaps: its history says so, and from where (agent_enrolled, token_revoked). "
            "Jobs here end with their leases. To let this machine be the node again, stop the "
            "agent, remove its agent.token and start it with a new enrolment; else stop it. It "
            "asks again at growing intervals, without further messages",
            error,
            self._node,
        )

    def _note_accepted(self, sent_s: float) -> None:
        """Note that the scheduler accepted the token; not if it was sent before the refusal."""
        if self._refused_s is not None and sent_s > self._refused_s:
            self._refused_s = None
            _log.info("the scheduler takes this agent's token again")

    async def _wait_after(self, failures: int, error: Exception) -> None:
        """Wait longer after each failure, and not in step with other agents."""
        settings = self._settings
        most_s = min(settings.retry_least_s * 2 ** min(failures - 1, 16), settings.retry_most_s)
        if isinstance(error, PermissionError):
            least_s, doublings = settings.retry_refused_s, min(failures - 1, 16)
            most_s = min(least_s * 2**doublings, settings.retry_refused_most_s)
            self._note_refused(error)
        wait_s = most_s * self._machine.chance.uniform(0.5, 1.0)
        _log.log(
            _level(failures, error),
            "no good answer from the scheduler (%s); asking again in %.1f s",
            error,
            wait_s,
        )
        await asyncio.sleep(wait_s)

    def _workers_problems(self) -> dict[int, str]:
        """Return why workers cannot be used, by local index.

        The end of a lease must not be reported with an older state of the node than the one that
        the backend has read before it.
        """
        if self._stopping:
            return dict.fromkeys((worker.index for worker in self._inventory.workers), LEAVING)
        problems = self._backend.problems(self._problems)
        foreign = {} if self._gpus is None else self._gpus.foreign
        if self._disk or foreign:  # of idle workers: running jobs continue
            alive = (lease for lease in self._backend.held() if not lease.ended)
            busy = {worker for lease in alive for worker in lease.workers}
            idle = sorted({w.index for w in self._inventory.workers} - busy)
            found = dict.fromkeys(idle, self._disk) if self._disk else foreign
            problems = {w: text for w, text in found.items() if w in idle} | problems
        return problems

    def _report(self) -> NodeReport:
        self._sequence += 1
        problems = self._workers_problems()
        return NodeReport(
            node=self._node,
            incarnation=self._incarnation,
            sequence=self._sequence,
            term=self._view.term,
            # Before the first desired set the agent cannot know which leases are missing.
            revision=max(self._view.revision, 0) if self._view.known else 0,
            workers=tuple(
                WorkerReport(
                    index=worker.index,
                    worker_type=worker.worker_type,
                    problem=problems.get(worker.index, ""),
                    sharing=worker.sharing,
                )
                for worker in self._inventory.workers
            ),
            leases=self._lease_reports(),
            remarks=(*self._backend.remarks(), *filter(None, (self._remark,))),
            crashed=self._crashed,
            place=self._place,
            stalls=self._stalls(),
        )

    def _lease_reports(self) -> tuple[LeaseReport, ...]:
        """Return held leases and those about to start: any other lease is not here."""
        held = self._backend.reports()
        if (gpus := self._gpus) is not None:
            held = tuple(replace(report, gpu=gpus.of(report.lease_id)) for report in held)
        present = {report.lease_id for report in held}
        coming = (
            LeaseReport(
                lease_id=want.lease.lease_id,
                token=want.lease.token,
                state=LeasePhase.STARTING,
                steps_done=want.lease.steps_done,
                steps_live=want.lease.steps_done,
                nonce=want.lease.nonce,
                job_id=want.lease.job_id,
            )
            for want in self._view.wanted.values()
            if want.lease.lease_id not in present
            and want.lease.token >= self._view.newest_token.get(want.lease.job_id, -1)
        )
        unusable = (
            LeaseReport(
                lease_id=lease.lease_id,
                token=lease.token,
                state=LeasePhase.ENDED,
                reason=EndReason.FAILED,
                message=f"the agent cannot make sense of the lease: {lease.message}",
                nonce=lease.nonce,
            )
            for lease in self._view.unusable
            if lease.lease_id not in present
        )
        return tuple(sorted((*held, *coming, *unusable), key=lambda report: report.lease_id))

    def _newest(self) -> tuple[int, int]:
        """Return the newest known revision; after a restart the same set is wanted again."""
        return self._view.term, self._view.revision if self._view.known else -1

    def _note_down(self, view: DesiredView, *, stopped: bool = False) -> None:
        """Store the state for the next agent; ``stopped`` only at this one's end."""
        known = {
            "term": view.term,
            "revision": view.revision,
            "stopped": stopped,
            "incarnation": self._incarnation,
        }
        try:
            self._memory.write("agent.json", known)
        except OSError as error:  # only a restarted agent would read it
            _log.warning("the last accepted state cannot be written: %s", error)

    def _recall(self) -> None:
        data = Reader(self._memory.read("agent.json") or {})
        self._crashed = data.data.get("stopped") is False  # the previous release did not write it
        with contextlib.suppress(InputError):  # the clock may have been set back since
            earlier = data.number("incarnation")
            self._incarnation = max(self._incarnation, earlier + 1.0)
        with contextlib.suppress(InputError):
            self._view = replace(
                self._view,
                term=data.integer("term"),
                revision=data.integer("revision", at_least=-1),
            )


async def _endure(work: Callable[[], Awaitable[None]]) -> None:
    """Run a part of the agent's work; if no more files can be opened, restart it later."""
    while True:
        try:
            return await work()
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE}:
                raise
            _log.error("%s; trying again in %g s", error.strerror, AGAIN_S)
            await asyncio.sleep(AGAIN_S)


def _meter(workers: Workers) -> GpuMeter | None:
    """Return the meter of GPU use, if NVML has found GPUs."""
    if not isinstance(workers, Inventory) or workers.nvml is None:
        return None
    return GpuMeter(workers)


def _level(failures: int, error: Exception) -> int:
    """Return the log level of a failure: repeated failures are logged less and less often."""
    if isinstance(error, PermissionError):
        return logging.DEBUG  # it was logged once as an error
    return logging.WARNING if failures.bit_count() == 1 else logging.DEBUG


async def _wait(event: asyncio.Event, most_s: float) -> None:
    """Wait for an event, not too long.

    Not ``wait_for``: before Python 3.12 it can swallow a cancellation that meets the event.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await event.wait()
