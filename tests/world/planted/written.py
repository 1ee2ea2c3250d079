"""Plausible faults to plant: the code, the code with the fault, and why it is wrong."""

from __future__ import annotations

DRIVER = "scheduler/runtime/driver/driver.py"
DRIVING = "scheduler/runtime/driver/restart_driver.py"
LEADERSHIP = "scheduler/runtime/driver/leadership.py"
LEASES = "scheduler/control/state/leases.py"
REPORTS = "scheduler/control/nodes/reports.py"
LEASE_ENDS = "scheduler/control/leases/ends.py"
MEMORY = "tests/support/leasehold_testing/memory_store.py"
CHECKS = "scheduler/store/checks.py"
LOOP = "agent/loop.py"
RECONCILE = "agent/reconcile.py"

RESERVATIONS = "scheduler/engine/events/on_reservations.py"
BUDGETS = "scheduler/control/projects/budgets.py"
SPENDING = "scheduler/runtime/driver/spending.py"
SNAPSHOTS = "scheduler/runtime/driver/snapshots.py"
ENGINE_SNAPSHOT = "scheduler/engine/snapshot.py"
ENGINE = "scheduler/engine/engine.py"
KEEPING = "scheduler/engine/state/preemption_protection.py"
TAKEOVER = "scheduler/runtime/driver/takeover.py"
ON_LEASES = "scheduler/engine/events/on_leases.py"

#: (name, path, before, after, description)
WRITTEN: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "w01",
        DRIVER,
        "            head = await self._commit(self._entry(decision)) if decision.is_stored else None\n",
        "            self.control.publish(decision)\n"
        "            head = await self._commit(self._entry(decision)) if decision.is_stored else None\n",
        "published before it is committed",
    ),
    (
        "w02",
        DRIVER,
        "                answers.append((future, answered))\n",
        "                future.done() or answered.error or future.set_result(answered.result)\n",
        "answered before it is committed",
    ),
    (
        "w03",
        DRIVER,
        "        if head.sequence >= entry.sequence:\n",
        "        if head.sequence > entry.sequence:\n",
        "a commit whose answer was lost is not looked for",
    ),
    (
        "w04",
        DRIVER,
        "            if leader is not None and leader.token == self.view.term:\n",
        "            if leader is not None:\n",
        "another leader's entry is taken for the own one",
    ),
    (
        "w05",
        DRIVER,
        "            self._ask(question, policy)\n\n    @property\n    def problem",
        "            pass\n\n    @property\n    def problem",
        "a start does not ask the open question again",
    ),
    (
        "w06",
        DRIVER,
        "            sequence = self._next_sequence - 1\n",
        "            sequence = self._next_sequence\n",
        "a snapshot says that it is of the next entry",
    ),
    (
        "w07",
        DRIVER,
        "            self._metrics.solve_failed()\n",
        "            return\n",
        "that a policy has failed is told to nobody",
    ),
    (
        "w08",
        MEMORY,
        "            check_leader(token, self._leader)\n            check_next(",
        "            check_next(",
        "commits are not fenced",
    ),
    (
        "w09",
        MEMORY,
        "            if still_leads(now, holder, now_s=now_s, lapsed=lapsed):\n",
        "            if still_leads(now, holder, now_s=-1e18, lapsed=None):\n",
        "a leadership never runs out",
    ),
    (
        "w10",
        CHECKS,
        "    return max(last + 1, int(now_s))\n",
        "    return int(now_s)\n",
        "two leaders within a second have one token",
    ),
    (
        "w11",
        MEMORY,
        "e.sequence > snapshot.sequence]",
        "e.sequence > snapshot.sequence + 1]",
        "a snapshot drops an entry that it does not cover",
    ),
    (
        "w12",
        LEASES,
        "if now_s > live.promised_s + after_s)",
        "if now_s > live.deadline_s + after_s)",
        "a revoked lease is over at its new deadline, of which its node may not have heard",
    ),
    (
        "w13",
        LEASE_ENDS,
        "after_s=settings.margin_s)",
        "after_s=-2.0)",
        "workers are given away two seconds before the deadline",
    ),
    (
        "w14",
        REPORTS,
        "        elif member.end is None and current and report.revision >= member.since:\n",
        "        elif member.end is None and current:\n",
        "a lease that a node has not heard of yet is taken for lost",
    ),
    (
        "w15",
        REPORTS,
        "    return node.is_news(report) or _is_left_over(node, report, now_s=transaction.now_s)\n",
        "    return True\n",
        "a report that was overtaken counts",
    ),
    (
        "w16",
        LEASES,
        "        return all(member.end is not None for member in self.members)\n",
        "        return any(member.end is not None for member in self.members)\n",
        "a gang is over when its first part is",
    ),
    (
        "w17",
        LEASE_ENDS,
        "            if not (member.wanted or live.ended or live.revoked in ABRUPT):\n",
        "            if False:\n",
        "the end of a part of a gang is not stored",
    ),
    (
        "w18",
        LEASES,
        "            for member in live.members:\n                member.wanted = False\n        else:\n",
        "            pass\n        else:\n",
        "a job that is cancelled runs on",
    ),
    (
        "w19",
        LOOP,
        "            view = accept_desired(self._view, desired, sent_s=sent_s)\n",
        "            view = accept_desired(self._view, desired, sent_s=self._now_s())\n",
        "a deadline is counted from the answer",
    ),
    (
        "w20",
        RECONCILE,
        "    if (desired.term, desired.revision) < (view.term, view.revision):\n",
        "    if desired.revision < view.revision:\n",
        "revisions of two leaders are compared",
    ),
    (
        "w21",
        LOOP,
        "            try:\n                await self._link.report(report)\n",
        "            self._backend.mark_delivered(\n"
        "                {r.lease_id for r in report.leases if r.state is LeasePhase.ENDED},\n"
        "                term=report.term,\n"
        "            )\n"
        "            try:\n                await self._link.report(report)\n",
        "an end counts as delivered before it is",
    ),
    (
        "w22",
        LOOP,
        "        return tuple(sorted((*held, *coming, *unusable), key=lambda report: report.lease_id))\n",
        "        return tuple(sorted((*held, *unusable), key=lambda report: report.lease_id))\n",
        "what is about to begin is not reported",
    ),
    (
        "w23",
        RECONCILE,
        "        forget = delivered and want is None\n",
        "        forget = view.known and want is None\n",
        "an end is forgotten before it is delivered",
    ),
    (
        "w24",
        RECONCILE,
        "    if deadline_s != lease.deadline_s:\n        secret_env",
        "    if deadline_s < lease.deadline_s:\n        secret_env",
        "a lease is never renewed",
    ),
    (
        "w25",
        LEADERSHIP,
        "            if asked is not None and (taken := await asked) is not None:\n"
        "                token = taken.token\n",
        "",
        "who is stopped while it becomes the leader keeps the leadership",
    ),
)

#: Faults of rights to workers: reservations, budgets, and fading use.
SHARES: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "s01",
        RESERVATIONS,
        "        if rule.from_s < horizon_s and rule.until_s > state.now_s and found.workers[rule.name]\n",
        "        if rule.from_s <= state.now_s < rule.until_s and found.workers[rule.name]\n",
        "leases of others are granted beyond the begin of a window",
    ),
    (
        "s02",
        RESERVATIONS,
        "    fleet.set_set_aside([w for rule in in_force for w in found.workers[rule.name]])\n",
        "    fleet.set_set_aside([])\n",
        "reserved workers are not set aside",
    ),
    (
        "s03",
        RESERVATIONS,
        "    found.in_force = tuple(rule for rule in found.in_force if rule in found.rules)\n",
        "",
        "a reservation that is deleted stays in force until the next look",
    ),
    (
        "s04",
        RESERVATIONS,
        "    if found.seen is None or not np.array_equal(found.seen, usable):\n",
        "    if found.seen is None:\n",
        "a reservation keeps workers that cannot be used any more",
    ),
    (
        "s05",
        RESERVATIONS,
        "    for name in event.reservations:\n",
        "    for name in ():\n",
        "jobs that come later may not use their project's reservation",
    ),
    (
        "s06",
        SNAPSHOTS,
        "            state.reservations = {**state.reservations, found.name: found}\n",
        "            state.reservations = {found.name: found}\n",
        "a start knows one reservation only",
    ),
    (
        "s07",
        BUDGETS,
        '    stops, stopped = says == "spent", project in state.jobs.stopped\n',
        "    stops, stopped = part >= 1.6, project in state.jobs.stopped\n",
        "a budget is left to run over",
    ),
    (
        "s08",
        BUDGETS,
        "            held_us = max(_in_us(row.ended_s) - max(_in_us(row.start_s), since_us), 0)\n",
        "            held_us = max(_in_us(row.ended_s) - _in_us(row.start_s), 0)\n",
        "what began before a leader began to count is counted twice",
    ),
    (
        "s09",
        SPENDING,
        "        state.budgets.add(use_of_month(store, begin_s))\n",
        "        state.budgets.counted = True\n",
        "a start does not ask the ledger what was used",
    ),
    (
        "s10",
        BUDGETS,
        "    room_s = dict.fromkeys(state.jobs.stopped, state.settings.engine.round_length_s)\n",
        "    room_s = dict.fromkeys(state.jobs.limits, 9 * state.settings.engine.round_length_s)\n",
        "projects are stopped long before their budgets are used up",
    ),
    (
        "s11",
        ENGINE_SNAPSHOT,
        "        state.usage.by_entity = stored.usage_s.copy()\n",
        "        pass\n",
        "a start from a snapshot forgets what was used of late",
    ),
    (
        "s12",
        ENGINE,
        "        if state.usage.half_life_s and elapsed > 0:\n",
        "        if state.usage.half_life_s and elapsed > 0.02:\n",
        "short times do not count as use",
    ),
    (
        "s13",
        DRIVING,
        "            token = following\n",
        "            pass\n",
        "a state that is loaded again after a refused write keeps its term",
    ),
    (
        "s14",
        REPORTS,
        "    if report.place and node.place and report.place != node.place:\n",
        "    if report.place and node.place and report.place != node.place and False:\n",
        "an agent on a copy of the disk takes the node over from one that reports",
    ),
    (
        "s15",
        KEEPING,
        "    launched = (worth_s > 0) & (ran_s < worth_s)\n",
        "    launched = (worth_s > 0) & (ran_s < -launch_s)\n",
        "jobs lose their workers while they launch",
    ),
    (
        "s16",
        ON_LEASES,
        "    if failed and state.settings.avoid_node_s:\n",
        "    if failed and state.settings.avoid_node_s and False:\n",
        "a job that has failed goes back to the node on which it failed",
    ),
    (
        "s17",
        REPORTS,
        "    _note_lost_entries(state, transaction, report)\n",
        "",
        "jobs are not named whose leases the database has lost",
    ),
    (
        "s18",
        LEADERSHIP,
        "            self._clock.set_right()\n",
        "            pass\n",
        "a scheduler leads by the time of a clock that was wrong when it began",
    ),
    (
        "s19",
        TAKEOVER,
        "        if abs(off_s) > FAR_AHEAD_S:\n",
        "        if abs(off_s) > FAR_AHEAD_S and False:\n",
        "a scheduler leads with a clock that is hours off that of the database",
    ),
    (
        "s20",
        MEMORY,
        "            self._last_token = next_token(self._last_token, now_s)\n",
        "            if now is None or now.holder != holder:\n"
        "                self._last_token = next_token(self._last_token, now_s)\n",
        "a scheduler leads with the token of another one of its name",
    ),
    (
        "s21",
        RECONCILE,
        "        delivered = view.known and lease.delivered_term == view.term\n",
        "        delivered = view.known and lease.delivered_term is not None\n",
        "an end is forgotten that only an earlier leader has heard of",
    ),
)
