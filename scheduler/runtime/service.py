"""The service: one process of the daemon, leading or standing by."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import clock_warning
from scheduler.control.facts.facts import (
    JobActionAsked,
    JobChangeAsked,
    NodeReported,
)
from scheduler.control.facts.requests import JobAction, Submission, Submitted
from scheduler.control.facts.specs import spec_from_json
from scheduler.control.jobs.actions import try_act
from scheduler.control.jobs.submit import try_fit
from scheduler.control.nodes.inventory import inventory_of
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import LeasePhase
from scheduler.domain.rows import HistoryRow
from scheduler.engine.warm_up import warm_up
from scheduler.errors import (
    AdmissionError,
    ConflictError,
    LeaseholdError,
    NotLeadingError,
    StaleLeaderError,
    StartingError,
    StoreUnavailableError,
    TurnFailedError,
    WrongClockError,
)
from scheduler.logs.following import OutputReader
from scheduler.logs.logbook import LogBook
from scheduler.runtime.cluster_admin import ClusterAdmin
from scheduler.runtime.desired_sets import DesiredSets
from scheduler.runtime.driver.leadership import LeaderKeeper
from scheduler.runtime.driver.restart_driver import (
    cancel_and_wait,
    lead_in_terms,
    run_with_recovery,
)
from scheduler.runtime.driver.takeover import Takeover
from scheduler.runtime.execs import Execs
from scheduler.runtime.intake import submission_fact
from scheduler.runtime.planning import Planning
from scheduler.runtime.retention import Retention
from scheduler.runtime.signals import News, NodeSignals, first_of
from scheduler.secret_box import NO_KEY, SecretBox
from scheduler.views import state_views
from scheduler.views.explain import (
    WaitingJobs,
    explain,
    explain_ended,
    keeps_nothing,
    with_deadline,
)
from scheduler.views.explain_history import with_history
from scheduler.views.history_kinds import EventKind
from scheduler.views.types import ExpectedStarts, Health
from scheduler.webhooks.delivery import Webhooks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from scheduler.clock import Clock
    from scheduler.control.facts.facts import Fact
    from scheduler.control.facts.requests import Acted, Fit
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.rows import JobRow
    from scheduler.domain.throughputs.knowledge import MakeKnowledge
    from scheduler.domain.throughputs.ways import Way
    from scheduler.logs.output import LogChunk, LogEnd, LogWanted, StoredLog
    from scheduler.protocol.desired import Desired
    from scheduler.protocol.reports import NodeReport
    from scheduler.runtime.driver.driver import Driver, Told
    from scheduler.runtime.driver.restart_driver import FailedTurn
    from scheduler.runtime.forecaster import Forecaster
    from scheduler.runtime.settings import RuntimeSettings
    from scheduler.runtime.solver import Solver
    from scheduler.store.protocol import Store
    from scheduler.views.metrics import Metrics
    from scheduler.views.types import Explanation, LiveJob
    from scheduler.webhooks.webhooks import Post

_log = logging.getLogger("leasehold.service")

#: The problem of a process that cannot lead or stand by yet.
STARTING = (
    "starting: the planning of rounds is compiled; this takes up to a minute after an installation"
)
RECOVERING = "recovering"
STANDS_BY = "another scheduler leads"
#: The same, as long as no leader was seen to renew.
LOOKS = "no scheduler is known to lead; this one does in a while if none shows itself"
#: The wait between two tries to lead with a clock that is behind the stored entries.
CLOCK_AGAIN_S = 5.0
#: The longest wait of a reader for a new round.
CALM_S: Final = 0.5
_NOT_READY = frozenset({STARTING, RECOVERING})
#: Most jobs of one decision on a submission.
_PIECE: Final = 250


class LiveService(ClusterAdmin):
    """The contract of ``contract.SchedulerService``.

    Args:
        store: the database.
        clock: the time.
        solver: answers questions.
        knowledge: makes the knowledge from its stored parts.
        settings: of the runtime.
        metrics: the counters.
        state_dir: the folder of logs.
        holder: this process's name among those that may lead.
        address: the address at which others reach it.
        ttl_s: of the leadership.
        forecaster: predicts times; None for no forecasts.
        version: of the program.
        after_restore: whether an old backup was restored: nodes may hold leases that it does not
            know.
        after_set_back: whether the system's clock was ahead before, and is right now.
        solver_is_warm: returns whether the solver's first start is over.
        box: keeps the jobs' secret variables; one without a key by default.
        post: sends the messages of webhooks; none are sent by default.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        solver: Solver,
        knowledge: MakeKnowledge,
        settings: RuntimeSettings,
        metrics: Metrics,
        state_dir: Path,
        holder: str,
        address: str = "",
        ttl_s: float = 15.0,
        forecaster: Forecaster | None = None,
        version: str = "",
        after_restore: bool = False,
        after_set_back: bool = False,
        solver_is_warm: Callable[[], bool] = lambda: True,
        box: SecretBox | None = None,
        post: Post | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._solver = solver
        self._settings = settings
        self._metrics = metrics
        self._keeper = LeaderKeeper(store, clock, holder=holder, ttl_s=ttl_s, address=address)
        self._logs = LogBook(state_dir / "logs", most_bytes=settings.log_bytes)
        self._output = OutputReader(self._logs, store, clock)
        self._retention = Retention(store, self._logs, clock, settings)
        self._forecaster = forecaster
        self._version = version
        self._solver_is_warm = solver_is_warm
        self._box = box or SecretBox()
        self._signals = NodeSignals()
        self._planning = Planning(lambda: self._view)
        #: commands that run beside jobs.
        self.execs = Execs(clock, view=lambda: self._view, wake=self._signals.tell, note=self.note)
        #: the webhooks that receive events.
        self.webhooks = Webhooks(
            store,
            clock,
            self._box,
            metrics,
            news=lambda after_id, wait_s: self.wait_for_history(after_id, wait_s=wait_s),
            note=self.note,
            post=post,
            rules=settings.webhooks,
            leader=lambda: self.driver,
        )
        self._started_s = clock.now_s()
        self._driver: Driver | None = None
        self._desired_sets: DesiredSets | None = None
        self._takeover = Takeover(
            store=store,
            clock=clock,
            solver=solver,
            knowledge=knowledge,
            settings=settings,
            metrics=metrics,
            signals=self._signals,
            after_restore=after_restore,
            after_set_back=after_set_back,
        )
        self._glance: WaitingJobs | None = None
        #: when a user, not a node, last changed something.
        self._changed_s = -math.inf
        self._problem = STARTING
        #: why this machine's clock keeps this process from leading; empty if it does not.
        self._behind = ""
        #: why the last turn could not be committed; empty if none failed.
        self._failed_turn = ""
        #: set when this process begins or ceases to lead; a new one replaces it then.
        self._turned = News()

    # -- life -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand by, lead, and stand by again, until cancelled."""
        await asyncio.to_thread(warm_up)
        while True:
            self._problem, self._takeover.leads_on = STANDS_BY, False
            token = await self._keeper.wait_to_lead()
            try:
                await lead_in_terms(self._lead, token, self._keeper.retake, self._note_failed_turn)
            except StaleLeaderError as error:
                _log.error("this scheduler no longer leads: %s", error)
            except WrongClockError as error:
                await self._wait_for_clock(error)

    async def _wait_for_clock(self, error: WrongClockError) -> None:
        """Let another scheduler lead, and try again after a while."""
        if not self._behind:
            _log.error("this scheduler does not lead: %s", error)
        self._behind = str(error)
        await self._keeper.release()
        await asyncio.sleep(CLOCK_AGAIN_S)

    async def stop(self) -> None:
        """Write a last snapshot and release the leadership. ``run`` must have been cancelled."""
        await self._keeper.release()

    async def begin(self, token: int, suspects: Sequence[Told] = ()) -> Driver:
        """Load the state and answer as the leader; the caller runs the driver.

        A part of ``run``, which does both; for tests that run the driver's turns one by one.
        """
        self._problem = RECOVERING
        driver = await self._takeover.driver(token, suspects)
        self._behind = ""
        self._driver, self._problem = driver, ""
        self._desired_sets = DesiredSets(driver.untold, self._box, self.execs.orders)
        self._tell_lost_keys(driver.view)
        self._output.leading_since_s = self._clock.now_s()
        self._metrics.set_leading(True)
        self._turn_around()
        return driver

    def _tell_lost_keys(self, view: PublishedState) -> None:
        records = view.jobs.by_id.items()
        kept = ((job_id, r.spec.secret_env) for job_id, r in records if r.spec.secret_env)
        if lost := self._box.lost(kept):
            _log.error("%s", lost)

    def cease(self) -> None:
        """Stop answering as the leader; the next leader takes over unfinished work."""
        if self._driver is not None:
            self._driver.close()
        self._driver = None
        self.execs.forget()
        self._metrics.set_leading(False)
        self._turn_around()

    async def _lead(self, token: int, suspects: Sequence[Told]) -> FailedTurn | None:
        """Lead for one term."""
        keep = asyncio.create_task(self._keeper.keep())
        prune = asyncio.create_task(self._retention.run())
        send = asyncio.create_task(self.webhooks.run(token))
        try:
            return await run_with_recovery(partial(self.begin, token, suspects), keep, prune)
        finally:
            for task in (send, keep, prune):
                await cancel_and_wait(task)
            self.cease()

    def _note_failed_turn(self, error: TurnFailedError) -> None:
        """Show the error until a turn can be committed."""
        self._failed_turn, self._problem = str(error), RECOVERING
        self._metrics.turn_failed()

    def _turn_around(self) -> None:
        self._turned.set()
        self._turned = News()

    @property
    def store(self) -> Store:
        """The store."""
        return self._store

    @property
    def driver(self) -> Driver:
        """The driver of a leading process.

        Raises:
            NotLeadingError: this process does not lead, or not yet.
            StoreUnavailableError: the database is away, so no process can lead.
        """
        if self._driver is None:
            if self._keeper.failure is not None:
                raise _renewed(self._keeper.failure)
            if self._problem in _NOT_READY:
                raise StartingError(self._problem)
            raise NotLeadingError(self._leader_elsewhere)
        return self._driver

    @property
    def _leader_elsewhere(self) -> str:
        """The address of another process that leads; empty if none is known.

        The database names this process while it recovers, and its earlier self after a restart.
        """
        leader = self._keeper.leader_address
        return "" if leader == self._keeper.address else leader

    @property
    def _view(self) -> PublishedState:
        return self.driver.view

    def _look(self, view: PublishedState) -> WaitingJobs:
        """Return the results of views of many jobs, computed once per call of the engine."""
        if self._glance is None or not self._glance.shows(view):
            self._glance = WaitingJobs(view)
        return self._glance

    async def until_calm(self) -> None:
        """Wait while a new round is due or stored, but not for long."""
        if self._driver is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CALM_S):
                    await self._driver.until_calm()

    async def until_turned(self) -> None:
        """Wait until this process begins or ceases to lead."""
        await self._turned.wait()

    async def _tell(self, fact: Fact, *, patient: int = 0) -> Any:
        """Pass a fact to control; return its answer, which is durable."""
        answer = await self.driver.tell(fact, patient=patient)
        if not isinstance(fact, NodeReported):
            self._changed_s = self._clock.now_s()
        return answer

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(
        self, submissions: Sequence[Submission], *, actor: str
    ) -> tuple[Submitted, ...]:
        """Submit jobs; one that is refused does not affect the others. Durable on return.

        They are decided on in pieces, between which the loop does other work. If a later piece
        fails, its jobs are refused as ``unavailable``.

        Raises:
            LeaseholdError: no job was taken; or all that were have client ids, so that the request
                may be repeated.
        """
        sealable = self._box.can_seal
        refused = [bool(item.spec.secret_env) and not sealable for item in submissions]
        rest = [item for item, no in zip(submissions, refused, strict=True) if not no]
        taken: list[Submitted] = []
        for first in range(0, len(rest), _PIECE):
            piece = rest[first : first + _PIECE]
            try:
                await self._planning.for_jobs(item.spec for item in piece)
                fact = await asyncio.to_thread(
                    submission_fact, self._store, piece, actor=actor, box=self._box
                )
                taken += await self._tell(fact)
            except LeaseholdError as error:
                if all(item.client_id for item in rest[:first]):
                    raise
                lost = Submitted(code="unavailable", refusal=f"{error}; submit this job again")
                taken += [lost] * (len(rest) - first)
                break
        self._metrics.submitted(sum(result.created for result in taken))
        left = iter(taken)
        without_key = Submitted(code="refused", refusal=NO_KEY)
        return tuple(without_key if no else next(left) for no in refused)

    async def fit(self, spec: JobSpec, *, owner: str = "", forecast: bool = False) -> Fit:
        """Return whether and where a job could run; changes nothing."""
        if spec.secret_env and not self._box.can_seal:
            raise AdmissionError(NO_KEY)
        rows = await self._rows_of(spec.depends_on) if spec.depends_on else {}
        await self._planning.for_jobs([spec])
        fit = try_fit(self._view, spec, owner, rows)
        if not (forecast and fit.fits):
            return fit
        if self._driver is None or self._forecaster is None:
            return replace(fit, forecast="no forecast: this scheduler makes no replays")
        job = Submission(spec=spec, owner=owner)
        fact = await asyncio.to_thread(
            submission_fact, self._store, [job], actor=owner, box=self._box
        )
        return await self._forecaster.try_job(self._driver.copied, fact, fit)

    async def act(
        self,
        job_ids: Sequence[str],
        action: JobAction,
        *,
        actor: str,
        reason: str = "",
        dry_run: bool = False,
    ) -> tuple[Acted, ...]:
        """Cancel, hold, release or requeue jobs; one that fails does not affect the others."""
        rows = await self._rows_of(job_ids)
        if dry_run:
            return try_act(self._view, job_ids, action, rows)
        if action is JobAction.REQUEUE:
            await self._planning.for_jobs(spec_from_json(row.spec) for row in rows.values())
        acted: tuple[Acted, ...] = await self._tell(
            JobActionAsked(
                job_ids=tuple(job_ids), action=action, rows=rows, actor=actor, reason=reason
            )
        )
        return acted

    async def change(
        self,
        job_ids: Sequence[str],
        *,
        actor: str,
        weight: float | None = None,
        deadline_s: float | None = None,
        clear_deadline: bool = False,
    ) -> tuple[Acted, ...]:
        """Change weight or deadline of active jobs."""
        rows = await self._rows_of(job_ids)
        acted: tuple[Acted, ...] = await self._tell(
            JobChangeAsked(
                job_ids=tuple(job_ids),
                rows=rows,
                actor=actor,
                weight=weight,
                deadline_s=deadline_s,
                clear_deadline=clear_deadline,
            )
        )
        return acted

    async def _rows_of(self, job_ids: Sequence[str]) -> dict[str, JobRow]:
        """Return the stored rows of jobs that are not active."""
        active = self._view.jobs.by_id
        missing = [job_id for job_id in job_ids if job_id not in active]
        if not missing:
            return {}
        rows = await asyncio.to_thread(lambda: [self._store.job(job_id) for job_id in missing])
        return {row.job_id: row for row in rows if row is not None}

    def live(self, job_ids: Sequence[str]) -> Mapping[str, LiveJob]:
        """Return the live state of active jobs; other jobs, and all on a standby, are left out."""
        if self._driver is None:
            return {}
        view = self._driver.view
        return state_views.live_jobs(view, job_ids, self._look(view), now_s=self._clock.now_s())

    async def explain(self, row: JobRow, *, forecast: bool = True) -> Explanation:
        """Return why a job has its status and, if asked, when it will start and end."""
        if self._driver is None:
            return await asyncio.to_thread(with_history, explain_ended(row), self._store)
        view = self._driver.view
        explanation = explain(view, row, self._look(view), now_s=self._clock.now_s())
        explanation = await asyncio.to_thread(
            with_history, explanation, self._store, keeps_nothing=keeps_nothing(view, row.job_id)
        )
        if explanation.status is JobStatus.FAILED:
            tail = await self._output.last_words(row, is_active=self._activity(row.job_id))
            return replace(explanation, stderr_tail=tail)
        if forecast and self._forecaster is not None and row.job_id in view.jobs.by_id:
            explanation = await self._forecaster.add_times(
                self._driver.copied, explanation, changed_s=self._changed_s
            )
            explanation = with_deadline(explanation, row.deadline_s)
        return explanation

    def starts(self, job_ids: Sequence[str]) -> ExpectedStarts:
        """Return when waiting jobs will start, by the last replay; it does not wait for one."""
        if self._driver is None or self._forecaster is None or not job_ids:
            return ExpectedStarts()
        return self._forecaster.starts(self._driver.copied, job_ids)

    async def ways(self, row: JobRow) -> tuple[Way, ...]:
        """Return the ways in which a job could run, with their throughputs; none on a standby."""
        if self._driver is None:
            return ()
        view = self._driver.view
        if row.job_id not in view.jobs.by_id:
            await self._planning.for_jobs([spec_from_json(row.spec)])
        return state_views.ways_of(view, row)

    async def log_end(self, job_id: str, wanted: LogWanted) -> LogEnd:
        """Return whether the stored output is complete; waits a little if more is on its way."""
        return await self._output.end(job_id, wanted, is_active=self._activity(job_id))

    async def read_log(self, job_id: str, wanted: LogWanted) -> StoredLog:
        """Return the output so far of one attempt, by default the newest; all nodes of a gang."""
        self._activity(job_id)()  # raises if this process does not lead
        return await self._output.read(job_id, wanted)

    def follow_log(self, job_id: str, wanted: LogWanted) -> AsyncIterator[LogChunk | LogEnd]:
        """Yield output as it comes, through later attempts; then, whether it is complete."""
        is_active = self._activity(job_id)
        is_active()  # raises if this process does not lead
        return self._output.follow(job_id, wanted, is_active=is_active)

    def _activity(self, job_id: str) -> Callable[[], bool]:
        return lambda: job_id in self._view.jobs.by_id

    # -- agents -----------------------------------------------------------------------------------

    async def desired(
        self,
        node: str,
        *,
        after: tuple[int, int],
        wait_s: float,
        hindrance: str = "",
        instance: str = "",
    ) -> Desired:
        """Return the node's desired set, at once if newer than ``after``."""
        now_s, held_s = await self._until_newer(node, instance, after=after, wait_s=wait_s)
        assert self._desired_sets is not None
        return self._desired_sets.of(
            self._view, node, now_s=now_s, held_s=held_s, hindrance=hindrance
        )

    async def desired_json(
        self,
        node: str,
        *,
        after: tuple[int, int],
        wait_s: float,
        hindrance: str = "",
        instance: str = "",
    ) -> bytes:
        """Return the desired set as JSON."""
        now_s, held_s = await self._until_newer(node, instance, after=after, wait_s=wait_s)
        assert self._desired_sets is not None
        return self._desired_sets.json_of(
            self._view, node, now_s=now_s, held_s=held_s, hindrance=hindrance
        )

    async def _until_newer(
        self, node: str, instance: str, *, after: tuple[int, int], wait_s: float
    ) -> tuple[float, float]:
        """Wait for a desired set that is newer; returns the time and how long the wait took.

        Raises:
            ConflictError: another agent serves the node.
        """
        asked_s = self._clock.now_s()
        loop = asyncio.get_running_loop()
        until, asks = loop.time() + wait_s, True
        while True:
            view = self._view
            known = view.nodes.by_name.get(node)
            if known is not None and instance and known.instance not in {"", instance}:
                raise ConflictError(
                    f"another agent serves node '{node}', so this one gets no leases"
                )
            if asks and known is not None and known.last_seen_s is not None:
                self.driver.hear(node)
            asks = False  # what comes later says nothing of the agent: it may have died meanwhile
            current = view.term, 0 if known is None else known.revision
            left_s = until - loop.time()
            if current > after or left_s <= 0 or self.execs.waiting(node):
                break
            await first_of(self._signals.of(node), self._turned, within_s=left_s)
        now_s = self._clock.now_s()
        return now_s, now_s - asked_s

    async def report(
        self, report: NodeReport, *, address: str, version: str, enrolled: bool = False
    ) -> None:
        """Take in a report; ends of leases are durable on return."""
        fact = NodeReported(report=report, address=address, version=version, enrolled=enrolled)
        await self._planning.for_node(report.node, inventory_of(self._view, fact).types)
        await self._planning.for_ends(report)
        ended = sum(lease.state is LeasePhase.ENDED for lease in report.leases)
        await self._tell(fact, patient=1 + ended)

    async def append_log(
        self,
        node: str,
        lease_id: int,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end: bool | None = None,
        nonce: str = "",
    ) -> int:
        """Store output of a lease on a node; returns the offset to continue from.

        Raises:
            NotFoundError: there was no such lease on the node, or it has been dropped.
        """
        live = self._view.leases.by_id.get(lease_id)
        return await self._output.append(
            live, node, lease_id, stream, offset=offset, data=data, end=end, nonce=nonce
        )

    # -- the rest ---------------------------------------------------------------------------------

    def leader_known(self) -> bool:
        """Return whether agents' requests find a leader: this process, or a known one."""
        return self._driver is not None or bool(self._leader_elsewhere)

    def health(self) -> Health:
        """Return the daemon's health."""
        leading = self._driver is not None
        own = "" if leading else self._problem
        # The keeper's writes are small, and may succeed even if those of an entry fail.
        away = self._keeper.problem or ("" if self._driver is None else self._driver.problem)
        if own == STANDS_BY and (away or not self._keeper.sees_leader):
            own = "" if away else LOOKS
        cold = "" if self._solver_is_warm() else "the solver is starting"
        policy = "" if self._driver is None else state_views.policy_problem(self._driver.view)
        clock = self._behind or clock_warning(self._clock)
        if self._driver is not None and self._driver.commits:
            self._failed_turn = ""
        return Health(
            ready=own not in _NOT_READY and not away and not cold,
            leading=leading,
            leader_address=self._keeper.leader_address if leading else self._leader_elsewhere,
            problems=tuple(
                problem
                for problem in (own, self._failed_turn, away, cold, policy, clock)
                if problem
            ),
            started_s=self._started_s,
            version=self._version,
        )

    async def note(
        self, kind: str, subject_kind: str, subject: str, *, actor: str, data: Mapping[str, Any]
    ) -> None:
        """Append a line of history that belongs to no engine step."""
        row = HistoryRow(
            at_s=self._clock.now_s(),
            kind=kind,
            subject_kind=subject_kind,
            subject=subject,
            actor=actor,
            data=dict(data),
        )
        if kind == EventKind.TOKEN_REUSED:
            self._metrics.token_reused()
        head = await asyncio.to_thread(self._store.append_history, (row,))
        if self._driver is not None:
            self._driver.tell_news(head)

    async def wait_for_history(self, after_id: int, *, wait_s: float) -> int:
        """Return the newest event id, as soon as it is above ``after_id`` or after ``wait_s``."""
        driver = self._driver
        if driver is None:  # a standby polls
            await asyncio.sleep(min(wait_s, 1.0))
            return (await asyncio.to_thread(self._store.head)).event_id
        if driver.event_id <= after_id:
            await first_of(driver.news, self._turned, within_s=wait_s)
        return driver.event_id

    def metrics(self) -> bytes:
        """Return the figures in Prometheus' text format."""
        self._metrics.set_ahead(self._clock.now_s() - self._clock.wall_s())
        if self._driver is not None:
            view = self._driver.view
            state_views.update_gauges(
                view, self._metrics, self._look(view), now_s=self._clock.now_s()
            )
        return self._metrics.render()


def _renewed(error: StoreUnavailableError) -> StoreUnavailableError:
    """Return an error to raise once more, without the traceback of the first time."""
    return type(error)(*error.args)
