"""Quotas in rounds: they are never exceeded, and lent workers come back."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold_testing.shell import VirtualShell
from policies.registry import make_policy
from policies.testing import make_table
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import FactKind
from scheduler.domain.jobs.job import Job
from scheduler.domain.quota import IdleQuota, Quota
from scheduler.engine.settings import EngineSettings
from scheduler.engine.snapshot import decode_state, dump, encode_state
from scheduler.errors import InputError

QUICK = EngineSettings(round_length_s=10.0)
SHARED = {(0, 0, k): (0.8, 0.7) for k in (0, 1)}


class Watching(VirtualShell):
    """Counts held workers at each grant of a lease; pairs count a worker once."""

    def __init__(self, *given, delays=None, **values):
        self.delays = delays  #: draws how late each revoked lease is over
        super().__init__(*given, **values)
        self.most = Counter()

    @property
    def release_delay_s(self):
        return self._delay_s if self.delays is None else self.delays()

    @release_delay_s.setter
    def release_delay_s(self, delay_s):
        self._delay_s = delay_s

    def used(self):
        """Return (project, owner, worker type) -> workers held; empty for all of them."""
        held = set()
        types = self.engine.fleet.type_of
        names = self.engine.cluster.type_names
        for one in self.executions.values():
            job = self.of[one.lease.job_id]
            for worker in one.lease.workers:
                for owner in ("", job.owner):
                    for kind in ("", names[types[worker]]):
                        held.add((job.project, owner, kind, worker))
        return Counter(key[:3] for key in held)

    def _grant(self, lease):
        super()._grant(lease)
        for key, count in self.used().items():
            self.most[key] = max(self.most[key], count)
        both = self.used()[("p", "", "")] + self.used()[("q", "", "")]
        self.most["both"] = max(self.most["both"], both)


def shell_of(*quotas, policy="max_min_fairness", table=None, spec="type-0:4,type-1:2", **values):
    table = table or make_table([[2.0, 1.0], [3.0, 2.0]], scale_factor=[1, 2])
    allocate = make_policy(policy).allocate
    made = Watching(parse_cluster_spec(spec), table, settings=QUICK, allocate=allocate, **values)
    made.of = {}
    if quotas:
        made.tell(ev.QuotasChanged(quotas=quotas))
    return made


def submit(shell, name, steps, *, project="p", owner="me", profile=0, **values):
    made = Job(
        job_id=name, job_type=f"profile-{profile}", total_steps=steps, project=project,
        owner=owner, scale_factor=1 + profile, arrival_s=shell.now, **values,
    )  # fmt: skip
    shell.of[name] = made
    shell.submit(made, profile)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(["max_min_fairness", "fifo", "gandiva", "least_remaining_work"]),
    pairs=st.booleans(),
    again=st.sampled_from(["", "restart", "upgrade"]),
)
def test_at_no_moment_more_is_held_than_quotas_allow(seed, policy, pairs, again):
    draw = np.random.default_rng(seed)
    table = make_table([[2.0, 1.0]], shared=SHARED) if pairs else None
    kind = draw.choice(["", "type-0"])
    quotas = (
        Quota(project="p", limit=int(draw.integers(2, 4)), worker_type=str(kind)),
        Quota(project="q", limit=2),
        Quota(project="q", limit=1, each_user=True, worker_type="type-1"),
    )
    late = np.random.default_rng(seed)
    delays = [0.0, 0.5, 3.0] if draw.random() < 0.5 else [float(draw.choice([0.0, 0.5, 3.0]))]
    shell = shell_of(*quotas, policy=policy, table=table, delays=lambda: float(late.choice(delays)))
    for i in range(12):
        profile = 0 if pairs else int(draw.integers(0, 2))
        project, owner = str(draw.choice(["p", "q", "r"])), str(draw.choice(["ann", "bob"]))
        steps = float(draw.integers(20, 120))
        submit(shell, f"j{i}", steps, project=project, owner=owner, profile=profile)
        shell.run(until_s=shell.now + float(draw.choice([0.0, 1.0, 12.0])))
        if again and i == 8:
            getattr(shell, again)()
    shell.run_until_idle(at_most_s=20000.0)
    assert set(shell.ended.values()) == {"job_completed"}
    assert shell.most["p", "", str(kind)] <= quotas[0].limit
    assert shell.most["q", "", ""] <= 2
    assert max(shell.most["q", owner, "type-1"] for owner in ("ann", "bob")) <= 1


def test_a_planned_lease_waits_for_what_it_needs_and_not_for_what_others_need():
    """Eight of sixteen jobs at a time, on other workers each round: each waits for one to end."""
    limit = Quota(project="p", limit=8)
    shell = shell_of(limit, spec="type-0:40,type-1:2", release_delay_s=2.0)
    for i in range(16):
        submit(shell, f"p{i}", 5000.0)
    for i in range(60):
        submit(shell, f"q{i}", 5000.0, project="q")
    most, waited = 0, 0
    for moment in np.arange(10.5, 200.0, 10.0):
        shell.run(until_s=float(moment))
        book = shell.engine.book
        for plan in book.planned.values():
            if shell.of[plan.job_id].project == "p":
                there = {one for worker in plan.workers for one in book.on_worker[worker]}
                waits = {shell.of[book.leases[one].job_id].project for one in plan.blockers - there}
                assert waits <= {"p"}
                most = max(most, len(plan.blockers - there))
                waited += bool(plan.blockers - there)
    assert waited > 5
    assert most == 1
    assert shell.most["p", "", ""] == 8


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_what_is_lent_is_used_once_and_comes_back_within_a_round(seed):
    draw = np.random.default_rng(seed)
    own = int(draw.integers(1, 3))
    quotas = (
        Quota(project="p", limit=own, idle=IdleQuota.LEND),
        Quota(project="q", limit=2, idle=IdleQuota.SHARE),
    )
    shell = shell_of(*quotas, spec="type-0:4,type-1:2")
    for i in range(6):
        submit(shell, f"q{i}", 2000.0, project="q", preemptible=bool(draw.random() < 0.8))
    shell.run(until_s=35.0)
    soft = sum(shell.of[f"q{i}"].preemptible for i in range(6))
    lent = shell.used()["q", "", ""]
    assert lent == min(2 + own, soft + min(6 - soft, 2))
    asked_s = shell.now
    for i in range(own):
        submit(shell, f"p{i}", 100.0, project="p")
    shell.run(until_s=asked_s + 20.5)
    assert shell.used()["p", "", ""] == own
    assert shell.used()["q", "", ""] <= 2
    shell.run(until_s=500.0)
    assert shell.used()["q", "", ""] == lent  # the lender is done
    assert shell.most["both"] <= own + 2


def test_jobs_that_could_not_give_workers_back_in_time_run_on_their_own_quota():
    quotas = (
        Quota(project="p", limit=2, idle=IdleQuota.LEND),
        Quota(project="q", limit=1, idle=IdleQuota.SHARE),
    )
    shell = shell_of(*quotas)
    for i in range(3):
        submit(shell, f"q{i}", 1000.0, project="q", min_run_time_s=60.0)
    shell.run(until_s=100.0)
    assert shell.most["q", "", ""] == 1
    submit(shell, "soft", 1000.0, project="q")
    shell.run(until_s=130.0)
    assert shell.used()["q", "", ""] == 2


def test_a_lowered_quota_is_why_a_lease_ends_with_the_round():
    shell = shell_of(policy="fifo")
    for i in range(4):
        submit(shell, f"j{i}", 1000.0)
    shell.run(until_s=15.0)
    assert shell.used()["p", "", ""] == 4
    shell.tell(ev.QuotasChanged(quotas=(Quota(project="p", limit=1),), project="p"))
    shell.run(until_s=20.5)
    assert shell.used()["p", "", ""] == 1
    causes = [c.cause for _, c in shell.history(do.RevokeLease)]
    assert {cause.fact for cause in causes} == {FactKind.QUOTA_CHANGED}
    assert causes[0].words() == (
        "in round 3: the quota of p was changed; others of its project use the quota, or it was "
        "lent and is asked for"
    )
    shell.tell(ev.QuotasChanged(quotas=(), project="p"))
    shell.run(until_s=21.0)
    assert shell.used()["p", "", ""] == 4


@pytest.mark.parametrize(("least_s", "left"), [(0.0, 1), (60.0, 2)])
def test_a_lowered_quota_ends_jobs_that_are_not_preemptible_but_keeps_least_times(least_s, left):
    shell = shell_of()
    for i in range(2):
        submit(shell, f"j{i}", 1000.0, preemptible=False, min_run_time_s=least_s)
    shell.run(until_s=15.0)
    shell.tell(ev.QuotasChanged(quotas=(Quota(project="p", limit=1),)))
    shell.run(until_s=25.0)
    assert shell.used()["p", "", ""] == left
    shell.run(until_s=100.0)
    assert shell.used()["p", "", ""] == 1


def test_a_question_names_only_quotas_that_can_bind():
    shell = shell_of(Quota(project="p", limit=2), Quota(project="q", limit=9), answer_delay_s=None)
    for i in range(3):
        submit(shell, f"p{i}", 10.0)
        submit(shell, f"q{i}", 10.0, project="q")
    caps = shell.questions[-1].problem.caps
    assert caps.limit.tolist() == [2.0]
    assert caps.member[caps.group].ravel().tolist() == [True, False] * 3
    free = shell_of(Quota(project="p", limit=3), answer_delay_s=None)
    submit(free, "one", 10.0)
    assert free.questions[-1].problem.caps is None


def test_jobs_of_a_release_that_knew_no_quotas_fall_under_theirs_when_their_owners_are_told():
    shell = shell_of()
    submit(shell, "new", 1000.0, project="p")
    submit(shell, "old", 1000.0, project="", owner="")
    shell.run(until_s=5.0)
    assert len(shell.executions) == 2
    owners = {"old": ("p", "me")}
    shell.tell(ev.QuotasChanged(quotas=(Quota(project="p", limit=1),), owners=owners))
    shell.run(until_s=12.0)
    assert len(shell.executions) == 1


def test_quotas_outlive_a_restart():
    shell = shell_of(Quota(project="p", limit=1), Quota(project="p", limit=1, each_user=True))
    submit(shell, "one", 10.0)
    stored = decode_state(encode_state(dump(shell.engine)))
    assert stored.quotas == shell.engine.quotas.rules
    assert [tuple(group) for group in stored.groups] == shell.engine.quotas.groups


def test_a_quota_that_cannot_be_is_refused():
    with pytest.raises(InputError, match=r"project 'p': its quota of workers is -1"):
        Quota(project="p", limit=-1)
    with pytest.raises(InputError, match="the quota of each user is to lend"):
        Quota(project="p", limit=1, each_user=True, idle=IdleQuota.LEND)


@pytest.mark.parametrize("why", ["budget", "user", "fleet", "held"])
def test_workers_are_lent_while_the_lenders_jobs_cannot_run(why):
    """Jobs of the lender that may not run, for any reason, ask for nothing."""
    quotas = [
        Quota(project="p", limit=3, idle=IdleQuota.LEND),
        Quota(project="q", limit=1, idle=IdleQuota.SHARE),
    ]
    if why == "user":
        quotas.append(Quota(project="p", limit=0, each_user=True))
    table = make_table([[2.0, 0.0], [3.0, 0.0]], scale_factor=[1, 3])
    shell = shell_of(*quotas, table=table, spec="type-0:4,type-1:2")
    if why == "fleet":
        shell.tell(ev.WorkersLost(workers=(3,)), ev.WorkersLost(workers=(2,)))
    for i in range(3):
        if why == "fleet":
            submit(shell, f"p{i}", 1000.0, profile=1)
        else:
            submit(shell, f"p{i}", 1000.0)
        if why == "budget":
            shell.tell(ev.FundsChanged(job_ids=(f"p{i}",), unfunded=True))
        elif why == "held":
            shell.tell(ev.JobHeld(job_id=f"p{i}"))
    for i in range(4):
        submit(shell, f"q{i}", 1000.0, project="q")
    shell.run(until_s=45.0)
    assert shell.used()["q", "", ""] == (2 if why == "fleet" else 4)


def test_a_lender_asks_for_no_more_than_its_users_may_hold():
    quotas = (
        Quota(project="p", limit=4, idle=IdleQuota.LEND),
        Quota(project="p", limit=1, each_user=True),
        Quota(project="q", limit=0, idle=IdleQuota.SHARE),
    )
    shell = shell_of(*quotas)
    for i in range(6):
        submit(shell, f"p{i}", 1000.0, owner="ann" if i < 3 else "bob")
        submit(shell, f"q{i}", 1000.0, project="q")
    shell.run(until_s=45.0)
    assert (shell.used()["p", "", ""], shell.used()["q", "", ""]) == (2, 2)
