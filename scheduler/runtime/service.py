"""The service: one process of the daemon, leading or standing by."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from scheduler.control.job_actions import act, change, try_act
from scheduler.control.operator_orders import (
    declare_throughputs,
    node_of,
    order_node,
    remove_node,
    set_policy,
    set_project,
)
from scheduler.control.reports import desired_json, desired_set, take_report
from scheduler.control.submitting import Known, digest_of, first_fit, submit
from scheduler.domain import events as ev
from scheduler.domain.job import JobStatus
from scheduler.domain.rows import HistoryRow
from scheduler.engine.warm_up import warm_up
from scheduler.errors import (
    NotLeadingError,
    StaleLeaderError,
    StoreUnavailableError,
)
from scheduler.protocol.desired import LeaseState
from scheduler.runtime import views
from scheduler.runtime.contract import (
    AllocationView,
    ClusterView,
    Health,
    ProjectView,
)
from scheduler.runtime.driver import Driver
from scheduler.runtime.driving import drive, end
from scheduler.runtime.explaining import explain, explain_ended, with_history
from scheduler.runtime.leadership import LeaderKeeper
from scheduler.runtime.log_following import Output
from scheduler.runtime.logbook import LogBook
from scheduler.runtime.retention import Retention
from scheduler.runtime.signals import News, first_of
from scheduler.runtime.snapshots import recover

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from scheduler.control.draft import Turn
    from scheduler.control.requests import (
        Acted,
        Fit,
        JobAction,
        NodeAction,
        PolicyChoice,
        ProjectLimits,
        Submission,
        Submitted,
    )
    from scheduler.control.state import LiveState
    from scheduler.domain.knowledge import MakeKnowledge
    from scheduler.domain.rows import JobRow
    from scheduler.domain.spec import JobSpec
    from scheduler.protocol.desired import Desired, NodeReport
    from scheduler.runtime.clock import Clock
    from scheduler.runtime.contract import (
        Explanation,
        LeaseView,
        LiveJob,
        NodeView,
        PolicyView,
        ThroughputView,
    )
    from scheduler.runtime.driver import Work
    from scheduler.runtime.metrics import Metrics
    from scheduler.runtime.output import LogChunk, LogEnd, LogWanted
    from scheduler.runtime.settings import RuntimeSettings
    from scheduler.runtime.solver import Solver
    from scheduler.store.protocol import Store

_log = logging.getLogger("leasehold.service")
_T = TypeVar("_T")

#: More leases than could have been granted since a backup.
SKIPPED_LEASES = 1_000_000


class Forecaster(Protocol):
    """Who predicts when jobs start and complete."""

    async def add_times(self, state: LiveState, explanation: Explanation) -> Explanation:
        """Return the explanation with expected times, or with the reason why there are none."""
        ...


class LiveService:
    """The contract of ``contract.Service``.

    Args:
        store: the database.
        clock: the time.
        solver: answers questions.
        knowledge: makes it of the operator's throughputs and of what was stored.
        settings: of the runtime.
        metrics: what is counted.
        state_dir: where logs are kept.
        holder: this process's name among those that may lead.
        address: where others reach it.
        ttl_s: of the leadership.
        forecaster: predicts times; None for no forecasts.
        version: of the program.
        after_restore: whether an old backup was put in place: nodes may hold leases that it does
            not know.
        solver_is_warm: tells whether the solver's first start is over.
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
        solver_is_warm: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._clock = clock
        self._solver = solver
        self._knowledge = knowledge
        self._settings = settings
        self._metrics = metrics
        self._keeper = LeaderKeeper(store, clock, holder=holder, ttl_s=ttl_s, address=address)
        self._logs = LogBook(state_dir / "logs", most_bytes=settings.log_bytes)
        self._output = Output(self._logs, store, clock)
        self._retention = Retention(store, self._logs, clock, settings)
        self._forecaster = forecaster
        self._version = version
        self._after_restore = after_restore
        self._solver_is_warm = solver_is_warm
        self._started_s = clock.now_s()
        self._driver: Driver | None = None
        self._problem = "starting"
        #: set whenever this process begins or ceases to lead; replaced by a new one then.
        self._turned = News()

    # -- life -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand by, lead, and stand by again, until cancelled."""
        await asyncio.to_thread(warm_up)
        while True:
            self._problem = "another scheduler leads"
            token = await self._keeper.wait_to_lead()
            try:
                await self._lead(token)
            except StaleLeaderError as error:
                _log.error("this scheduler leads no more: %s", error)
            finally:
                self.cease()

    async def stop(self) -> None:
        """Write a last snapshot and let somebody else lead. ``run`` must have been cancelled."""
        await self._keeper.release()

    async def begin(self, token: int, suspects: Sequence[Work] = ()) -> Driver:
        """Load the state and answer as the leader; the driver is still to be run.

        A part of ``run``, which does both; for tests that let the driver's turns happen one by one.
        """
        self._problem = "recovering"
        driver = await self._recover(token, suspects)
        self._driver, self._problem = driver, ""
        self._output.leading_since_s = self._clock.now_s()
        self._metrics.set_leading(True)
        self._turn_around()
        return driver

    def cease(self) -> None:
        """Answer as the leader no more; what is under way is left to whoever leads next."""
        if self._driver is not None:
            self._driver.close()
        self._driver = None
        self._metrics.set_leading(False)
        self._turn_around()

    async def _lead(self, token: int) -> None:
        keep = asyncio.create_task(self._keeper.keep())
        prune = asyncio.create_task(self._retention.run())
        try:
            await drive(partial(self.begin, token), self.cease, keep, prune)
        finally:
            for task in (keep, prune):
                await end(task)

    async def _recover(self, token: int, suspects: Sequence[Work]) -> Driver:
        """Load the state; the database may go away meanwhile."""
        while True:
            try:
                recovered = await asyncio.to_thread(self._store.load)
                self._clock.never_before(max((e.now_s for e in recovered.entries), default=0.0))
                now_s = self._clock.now_s()
                state = await asyncio.to_thread(
                    recover,
                    self._store,
                    recovered,
                    self._settings,
                    knowledge=self._knowledge,
                    time_dependent=self._solver.time_dependent,
                    term=token,
                    now_s=now_s,
                )
            except StoreUnavailableError as error:
                _log.warning("the state cannot be loaded, trying again: %s", error)
                await asyncio.sleep(1.0)
            else:
                break
        self._clock.never_before(state.engine.now_s)
        driver = Driver(
            state=state,
            store=self._store,
            next_sequence=recovered.next_sequence,
            clock=self._clock,
            solver=self._solver,
            metrics=self._metrics,
            suspects=suspects,
        )
        driver.event_id = (await asyncio.to_thread(self._store.head)).event_id
        driver.resume()
        if self._after_restore:
            self._after_restore = False
            driver.soon(_skip_leases(state))
        _log.info(
            "leading: %d active jobs, %d leases, %d nodes; %d journal entries were replayed",
            len(state.jobs),
            len(state.leases.by_id),
            len(state.nodes.by_name),
            len(recovered.entries),
        )
        return driver

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
            NotLeadingError: this process does not lead.
            StoreUnavailableError: nobody can lead while the database is away.
        """
        if self._driver is None:
            if self._keeper.failure is not None:
                raise _renewed(self._keeper.failure)
            leader = self._keeper.leader_address
            # Before it leads again, a leader that was restarted finds its own earlier self.
            raise NotLeadingError("" if leader == self._keeper.address else leader)
        return self._driver

    @property
    def _state(self) -> LiveState:
        return self.driver.state

    async def until_turned(self) -> None:
        """Wait until this process begins or ceases to lead."""
        await self._turned.wait()

    async def _do(self, work: Callable[[LiveState, Turn], _T], *, patient: int = 0) -> _T:
        # Another driver may come to do it, with the state that it has loaded.
        return await self.driver.take_in(lambda turn: work(self._state, turn), patient=patient)

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(
        self, submissions: Sequence[Submission], *, actor: str
    ) -> tuple[Submitted, ...]:
        """Take jobs in; each stands for itself. Durable on return."""
        known = await asyncio.to_thread(self._look_up, submissions)
        results = await self._do(
            lambda state, turn: submit(state, turn, submissions, known, actor=actor)
        )
        self._metrics.submitted(sum(result.created for result in results))
        return results

    def _look_up(self, submissions: Sequence[Submission]) -> Known:
        by_owner: dict[str, set[str]] = {}
        wanted: set[str] = set()
        for item in submissions:
            if item.client_id:
                by_owner.setdefault(item.owner, set()).add(item.client_id)
            wanted.update(other for other in (item.job_id, *item.spec.depends_on) if other)
        keys = {
            (owner, key): row
            for owner, names in by_owner.items()
            for key, row in self._store.jobs_of_keys(owner, names).items()
        }
        rows = ((job_id, self._store.job(job_id)) for job_id in sorted(wanted))
        digests = [digest_of(item.spec) for item in submissions]  # of large arrays it takes long
        return Known(keys, {job_id: row for job_id, row in rows if row is not None}, digests)

    async def fit(self, spec: JobSpec) -> Fit:
        """Tell whether and where a job could run; changes nothing."""
        return first_fit(self._state, spec)

    async def act(
        self,
        job_ids: Sequence[str],
        action: JobAction,
        *,
        actor: str,
        reason: str = "",
        dry_run: bool = False,
    ) -> tuple[Acted, ...]:
        """Cancel, hold, release or requeue jobs; each stands for itself."""
        rows = await self._rows_of(job_ids)
        if dry_run:
            return try_act(self._state, job_ids, action, rows)
        return await self._do(
            lambda state, turn: act(state, turn, job_ids, action, rows, actor=actor, reason=reason)
        )

    async def change(
        self,
        job_ids: Sequence[str],
        *,
        actor: str,
        weight: float | None = None,
        deadline_s: float | None = None,
        clear_deadline: bool = False,
    ) -> tuple[Acted, ...]:
        """Change weight or deadline of jobs that have not ended."""
        rows = await self._rows_of(job_ids)
        return await self._do(
            lambda state, turn: change(
                state,
                turn,
                job_ids,
                rows,
                actor=actor,
                weight=weight,
                deadline_s=deadline_s,
                clear_deadline=clear_deadline,
            )
        )

    async def _rows_of(self, job_ids: Sequence[str]) -> dict[str, JobRow]:
        """Return the stored rows of jobs that are not active."""
        active = self._state.jobs.by_id
        missing = [job_id for job_id in job_ids if job_id not in active]
        if not missing:
            return {}
        rows = await asyncio.to_thread(lambda: [self._store.job(job_id) for job_id in missing])
        return {row.job_id: row for row in rows if row is not None}

    def live(self, job_ids: Sequence[str]) -> Mapping[str, LiveJob]:
        """Return what is known of active jobs; others, and all on a standby, are left out."""
        if self._driver is None:
            return {}
        return views.live_jobs(self._driver.state, job_ids, now_s=self._clock.now_s())

    async def explain(self, row: JobRow, *, forecast: bool = True) -> Explanation:
        """Say why a job is where it is and, if asked, when it will start and end."""
        if self._driver is None:
            return await asyncio.to_thread(with_history, explain_ended(row), self._store)
        state = self._driver.state
        explanation = explain(state, row)
        if explanation.status is not JobStatus.RUNNING:
            explanation = await asyncio.to_thread(with_history, explanation, self._store)
        if explanation.status is JobStatus.FAILED:
            tail = await self._output.last_words(row, is_active=self._activity(row.job_id))
            return replace(explanation, stderr_tail=tail)
        if forecast and self._forecaster is not None and row.job_id in state.jobs.by_id:
            explanation = await self._forecaster.add_times(state, explanation)
        return explanation

    async def log_end(self, job_id: str, wanted: LogWanted) -> LogEnd:
        """Tell whether the output that is there is all; waits a little where it is on its way."""
        return await self._output.end(job_id, wanted, is_active=self._activity(job_id))

    async def read_log(self, job_id: str, wanted: LogWanted) -> tuple[LogChunk, ...]:
        """Return output so far, of one attempt: the newest unless told; all nodes of a gang."""
        self._activity(job_id)()  # raises where this process does not lead
        return await self._output.read(job_id, wanted)

    def follow_log(self, job_id: str, wanted: LogWanted) -> AsyncIterator[LogChunk | LogEnd]:
        """Yield output as it comes, through later attempts, and whether that is all at its end."""
        is_active = self._activity(job_id)
        is_active()  # raises where this process does not lead
        return self._output.follow(job_id, wanted, is_active=is_active)

    def _activity(self, job_id: str) -> Callable[[], bool]:
        return lambda: job_id in self._state.jobs.by_id

    # -- cluster ----------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeView, ...]:
        """Return every node by name."""
        return views.nodes(self._state)

    async def node_action(
        self, name: str, action: NodeAction, *, reason: str, actor: str
    ) -> NodeView:
        """Cordon, drain or uncordon a node."""
        await self._do(
            lambda state, turn: order_node(state, turn, name, action, reason=reason, actor=actor)
        )
        return views.node_view(self._state, node_of(self._state, name))

    async def remove_node(self, name: str, *, actor: str) -> None:
        """Forget a node that is lost or drained."""
        await self._do(lambda state, turn: remove_node(state, turn, name, actor=actor))

    def leases(self) -> tuple[LeaseView, ...]:
        """Return the leases in force by id."""
        return views.leases(self._state, now_s=self._clock.now_s())

    def cluster(self) -> ClusterView:
        """Return the cluster in figures."""
        return views.cluster(self._state)

    def allocation(self) -> AllocationView:
        """Return the allocation in force."""
        return views.allocation(self._state)

    def policy(self) -> PolicyView:
        """Return the policy in force."""
        return views.policy_view(self._state)

    async def set_policy(self, choice: PolicyChoice, *, actor: str) -> PolicyView:
        """Put a policy in force from the next question on."""
        await self._do(lambda state, turn: set_policy(state, turn, choice, actor=actor))
        return self.policy()

    def projects(self) -> tuple[ProjectView, ...]:
        """Return every project that has limits or active jobs, by name."""
        return views.projects(self._state)

    async def set_project(self, limits: ProjectLimits, *, actor: str) -> ProjectView:
        """Set a project's limits."""
        await self._do(lambda state, turn: set_project(state, turn, limits, actor=actor))
        return next(view for view in self.projects() if view.limits.project == limits.project)

    def throughputs(self) -> tuple[ThroughputView, ...]:
        """Return what is known, by job type, scale factor and worker type."""
        return views.throughputs(self._state)

    async def declare_throughputs(
        self, figures: Sequence[tuple[str, int, str, float]], *, actor: str
    ) -> int:
        """Declare (job type, scale factor, worker type, steps/s); returns how many changed."""
        return await self._do(
            lambda state, turn: declare_throughputs(state, turn, figures, actor=actor)
        )

    # -- agents -----------------------------------------------------------------------------------

    async def desired(self, node: str, *, after: tuple[int, int], wait_s: float) -> Desired:
        """Return the node's desired set, at once if newer than ``after``."""
        now_s, held_s = await self._until_newer(node, after=after, wait_s=wait_s)
        return desired_set(self._state, node, now_s=now_s, held_s=held_s)

    async def desired_json(self, node: str, *, after: tuple[int, int], wait_s: float) -> bytes:
        """Return the same as JSON."""
        now_s, held_s = await self._until_newer(node, after=after, wait_s=wait_s)
        return desired_json(self._state, node, now_s=now_s, held_s=held_s)

    async def _until_newer(
        self, node: str, *, after: tuple[int, int], wait_s: float
    ) -> tuple[float, float]:
        """Wait for a desired set that is newer; returns the time and how long it took."""
        asked_s = self._clock.now_s()
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while True:
            state = self._state
            known = state.nodes.by_name.get(node)
            if known is not None and known.last_seen_s is not None:
                known.last_seen_s = self._clock.now_s()
            current = state.term, 0 if known is None else known.revision
            left_s = until - loop.time()
            if current > after or left_s <= 0:
                break
            news = state.nodes.wait_for(node) if known is None else known.changed
            await first_of(news, self._turned, within_s=left_s)
        now_s = self._clock.now_s()
        return now_s, now_s - asked_s

    async def report(self, report: NodeReport, *, address: str, version: str) -> None:
        """Take a report in; ends of leases are durable on return."""
        await self._do(
            lambda state, turn: take_report(state, turn, report, address=address, version=version),
            patient=1 + sum(lease.state is LeaseState.ENDED for lease in report.leases),
        )

    async def append_log(
        self,
        node: str,
        lease_id: int,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end: bool | None = None,
    ) -> int:
        """Store output of a lease on a node; returns the offset to go on from.

        Raises:
            NotFoundError: there was no such lease on the node, or it has been forgotten.
        """
        live = self._state.leases.by_id.get(lease_id)
        return await self._output.append(
            live, node, lease_id, stream, offset=offset, data=data, end=end
        )

    # -- the rest ---------------------------------------------------------------------------------

    def leader_known(self) -> bool:
        """Tell whether requests of agents find somebody: this process leads, or knows who does."""
        return self._driver is not None or bool(self._keeper.leader_address)

    def health(self) -> Health:
        """Say how the daemon is."""
        leading = self._driver is not None
        own = "" if leading else self._problem
        # The keeper's writes are small, and may pass where an entry does not.
        away = self._keeper.problem or ("" if self._driver is None else self._driver.problem)
        cold = "" if self._solver_is_warm() else "the solver is starting"
        recovering = not leading and self._keeper.leading
        return Health(
            ready=not recovering and own != "starting" and not away and not cold,
            leading=leading,
            leader_address=self._keeper.leader_address,
            problems=tuple(problem for problem in (own, away, cold) if problem),
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
        head = await asyncio.to_thread(self._store.append_history, (row,))
        if self._driver is not None:
            self._driver.tell_news(head)

    async def wait_for_history(self, after_id: int, *, wait_s: float) -> int:
        """Return the newest event id, as soon as it is above ``after_id`` or after ``wait_s``."""
        driver = self._driver
        if driver is None:  # a standby looks now and then
            await asyncio.sleep(min(wait_s, 1.0))
            return (await asyncio.to_thread(self._store.head)).event_id
        if driver.event_id <= after_id:
            await first_of(driver.news, self._turned, within_s=wait_s)
        return driver.event_id

    def metrics(self) -> bytes:
        """Return the figures in Prometheus' text format."""
        if self._driver is not None:
            views.measure(self._driver.state, self._metrics, now_s=self._clock.now_s())
        return self._metrics.render()


def _renewed(error: StoreUnavailableError) -> StoreUnavailableError:
    """Return an error to raise once more, without the traceback of the first time."""
    return type(error)(*error.args)


def _skip_leases(state: LiveState) -> Callable[[Turn], None]:
    last = state.engine.newest_lease + SKIPPED_LEASES

    def skip(turn: Turn) -> None:
        turn.tell(ev.LeasesSkipped(last=last))
        turn.note("restored", "scheduler", "", newest_lease=last)

    return skip
