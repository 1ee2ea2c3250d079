"""Takeover: the stored state becomes the state of a process that leads."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.clock import FAR_AHEAD_S
from scheduler.control.control import Control
from scheduler.control.facts.facts import BackupRestored
from scheduler.domain.rows import HistoryRow
from scheduler.errors import (
    ParameterError,
    StoreUnavailableError,
    UnknownPolicyError,
    WrongClockError,
)
from scheduler.runtime.driver.driver import Driver
from scheduler.runtime.driver.outage import OutageLog
from scheduler.runtime.driver.snapshots import by_decider, recover_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.clock import Clock
    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.control.state.state import PolicyInForce
    from scheduler.domain.throughputs.knowledge import MakeKnowledge
    from scheduler.runtime.driver.driver import Told
    from scheduler.runtime.settings import RuntimeSettings
    from scheduler.runtime.signals import NodeSignals
    from scheduler.runtime.solver import Solver
    from scheduler.store.protocol import Store
    from scheduler.views.metrics import Metrics

_log = logging.getLogger("leasehold.service")

#: What happens while the policy in force cannot be asked.
MEANWHILE = (
    "the shares that it gave last stay in force, and jobs that came since run only on workers "
    "that no other job is due on; repair the plugin and restart, or choose another policy by "
    "`leasehold policy set`"
)
#: More leases than could have been granted since a backup.
SKIPPED_LEASES = 1_000_000


@dataclass(slots=True, kw_only=True)
class Takeover:
    """Everything that a process needs to lead.

    Attributes:
        store: the database.
        clock: the time.
        solver: answers questions.
        knowledge: makes the knowledge from its stored parts.
        settings: of the runtime.
        metrics: the counters.
        signals: wakes nodes that wait.
        after_restore: whether an old backup was restored, and no process has led since.
        after_set_back: whether the system's clock was ahead when entries were written, and is right
            now.
        leads_on: whether this process has led since it last stood by; then it keeps its time.
    """

    store: Store
    clock: Clock
    solver: Solver
    knowledge: MakeKnowledge
    settings: RuntimeSettings
    metrics: Metrics
    signals: NodeSignals
    after_restore: bool
    after_set_back: bool
    leads_on: bool = False

    async def driver(self, token: int, suspects: Sequence[Told]) -> Driver:
        """Load the state and return its driver; the database may go away meanwhile.

        Args:
            token: the leader's fencing token.
            suspects: facts that were in progress when the previous driver ended.
        """
        unloaded = OutageLog(_log, "the state cannot be loaded", now=self.metrics.clock)
        while True:
            try:
                driver = await self._load(token, suspects)
            except StoreUnavailableError as error:
                unloaded.failed(error)
                await asyncio.sleep(1.0)
            else:
                unloaded.over()
                self.leads_on = True
                return driver

    async def _load(self, token: int, suspects: Sequence[Told]) -> Driver:
        recovered = await asyncio.to_thread(self.store.load)
        self._compare_clocks(await asyncio.to_thread(self.store.server_s))
        self._check_clock(max((e.now_s for e in recovered.entries), default=0.0))
        self._check_time()
        self.clock.never_before(max((e.now_s for e in recovered.entries), default=0.0))
        now_s = self.clock.now_s()
        state = await asyncio.to_thread(
            recover_state,
            self.store,
            recovered,
            self.settings,
            knowledge=self.knowledge,
            time_dependent=self.time_dependent,
            term=token,
            now_s=now_s,
        )
        await asyncio.to_thread(self._look_at_policy, state.policy, now_s)
        head = await asyncio.to_thread(self.store.head)
        self._check_clock(state.engine.now_s)
        self.clock.never_before(state.engine.now_s)
        driver = Driver(
            control=Control(state),
            settings=self.settings,
            store=self.store,
            next_sequence=recovered.next_sequence,
            clock=self.clock,
            solver=self.solver,
            metrics=self.metrics,
            signals=self.signals,
            suspects=suspects,
        )
        driver.event_id = head.event_id
        own, others = by_decider(recovered)
        if others:  # decisions continue from here
            _log.warning(
                "another release left %d journal entries; they are not replayed, and leases and "
                "jobs are taken over as they are on record",
                len(others),
            )
            await driver.write_snapshot()
        driver.resume()
        if self.after_restore:
            self.after_restore = False
            driver.soon(BackupRestored(leases=SKIPPED_LEASES))
        _log.info(
            "leading: %d active jobs, %d leases, %d nodes; %d journal entries were replayed",
            len(state.jobs),
            len(state.leases.by_id),
            len(state.nodes.by_name),
            len(own),
        )
        return driver

    def _compare_clocks(self, server_s: float | None) -> None:
        """Refuse to lead with a clock that is far from the database's.

        Raises:
            WrongClockError: the clocks differ too much.
        """
        off_s = 0.0 if server_s is None else self.clock.wall_s() - server_s
        if abs(off_s) > FAR_AHEAD_S:
            side = "ahead of" if off_s > 0 else "behind"
            raise WrongClockError(
                f"this machine's clock is {abs(off_s):.0f} s {side} that of the database's machine"
                ". Set right the one that is wrong"
            )

    def _check_time(self) -> None:
        """Refuse to lead with a time that a clock gave before it was set.

        Raises:
            WrongClockError: the scheduler's time is far from this machine's clock.
        """
        if self.leads_on:
            return
        off_s = self.clock.wall_s() - self.clock.now_s()
        if off_s > FAR_AHEAD_S or (off_s < -FAR_AHEAD_S and not self.after_set_back):
            way = "forward" if off_s > 0 else "back"
            raise WrongClockError(
                f"this machine's clock was set {way} by {abs(off_s):.0f} s while this scheduler "
                "took over. It tries again with the clock's present time"
            )

    def _check_clock(self, written_s: float) -> None:
        """Refuse to lead with a clock that is behind the stored entries.

        Raises:
            WrongClockError: the clock is behind.
        """
        ahead_s = written_s - self.clock.wall_s()
        if ahead_s <= FAR_AHEAD_S or self.after_set_back:
            return
        written, told = (
            dt.datetime.fromtimestamp(at_s, dt.UTC).isoformat(" ", "seconds")
            for at_s in (written_s, self.clock.wall_s())
        )
        raise WrongClockError(
            f"the newest entry of the database is of {written}, and this machine's clock says "
            f"{told}. Set the clock right. If it is right now and was ahead then, start the "
            "scheduler once with --after-clock-set-back"
        )

    def time_dependent(self, choice: PolicyChoice) -> bool | None:
        """Return whether a stored policy's answers change with time; None if it is missing."""
        try:
            return self.solver.time_dependent(choice)
        except (UnknownPolicyError, ParameterError):
            return None

    def _look_at_policy(self, policy: PolicyInForce, now_s: float) -> None:
        """Report a policy in force that cannot be used, since a stored plugin may be broken.

        Every question fails then, and the allocation in force stays. The metrics, the health and
        the policy's view show it from the start.
        """
        try:
            self.solver.time_dependent(policy.choice)
        except (UnknownPolicyError, ParameterError) as error:
            policy.last_failure = str(error)
            _log.error(
                "policy '%s'%s cannot be used: %s; %s",
                policy.choice.name,
                f", set by {policy.actor}," if policy.actor else "",
                error,
                MEANWHILE,
            )
            line = HistoryRow(
                at_s=now_s,
                kind="policy_warning",
                subject_kind="policy",
                subject=policy.choice.name,
                data={"text": f"it cannot be used: {error}; {MEANWHILE}"},
            )
            self.store.append_history((line,))
