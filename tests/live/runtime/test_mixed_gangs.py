"""Jobs on workers of two types: leases of their nodes, learned rates, and a restart."""

import json

import pytest

from leasehold_testing.played import configured, played
from scheduler.domain.throughputs.knowledge import Part

TWO_TYPES = {"n0": ("v100",), "n1": ("k80",)}
RATES = {"v100": 4.0, "k80": 2.0}
MIXED = {
    "job_type": "t",
    "scale_factor": 2,
    "total_steps": 1e6,
    "throughputs": RATES,
    "mixed_gangs": True,
}
VARIABLES = ("LEASEHOLD_WORKER_TYPES", "LEASEHOLD_PACES")


async def ranks_of(stage):
    """Return rank, and what each process knows of the gang, by node."""
    found = {}
    for node in TWO_TYPES:
        for lease in await stage.launched(node):
            variables = [json.loads(lease.env[name]) for name in VARIABLES]
            found[node] = (lease.rank, lease.world_size, *variables)
    return found


def test_each_node_is_told_the_types_and_paces_of_all_ranks():
    async def story(stage):
        await stage.job("mixed", **MIXED)
        await stage.wait(2)
        explained = (await stage.request("GET", "/v1/jobs/mixed/explain")).json()
        listed = (await stage.request("GET", "/v1/jobs/mixed")).json()
        return await ranks_of(stage), explained["message"], listed["worker_type"]

    found, message, worker_type = played(story, nodes=TWO_TYPES)
    ranks = {rank: node for node, (rank, *_) in found.items()}
    types = [TWO_TYPES[ranks[rank]][0] for rank in (0, 1)]
    paces = [{"v100": 2.0, "k80": 1.0}[name] for name in types]
    assert sorted(ranks) == [0, 1]
    assert [one[1:] for one in found.values()] == [(2, types, paces)] * 2
    assert "it runs on 1 x k80 + 1 x v100 on n0, n1" in message
    assert worker_type == "k80 + v100"


def test_rank_0_is_reached_by_its_nodes_address_and_on_one_node_by_loopback():
    async def story(stage):
        await stage.job("wide", **MIXED)
        await stage.wait(2)
        wide = [(lease, node) for node in TWO_TYPES for lease in await stage.launched(node)]
        (first,) = [node for lease, node in wide if lease.rank == 0]
        assert {(lease.master_addr, lease.master_port) for lease, _ in wide} == {
            (first, wide[0][0].master_port)
        }
        await stage.request("POST", "/v1/jobs/wide/cancel")
        await stage.job("narrow", total_steps=1e6, throughputs=RATES)
        await stage.wait(30)
        return [lease.master_addr for node in TWO_TYPES for lease in await stage.launched(node)]

    assert played(story, nodes=TWO_TYPES) == ["127.0.0.1"]


def test_a_job_that_does_not_opt_in_waits_and_is_told_nothing():
    async def story(stage):
        await stage.job("plain", **MIXED | {"mixed_gangs": False, "scale_factor": 1})
        await stage.wait(2)
        return [lease.env for node in TWO_TYPES for lease in await stage.launched(node)]

    (env,) = played(story, nodes=TWO_TYPES)
    assert not env.keys() & set(VARIABLES)


def test_paces_stay_over_new_figures_and_a_restart_while_the_lease_lasts():
    async def story(stage):
        await stage.job("mixed", **MIXED)
        await stage.wait(4)
        before = await ranks_of(stage)
        figures = [("t", 2, "v100", 3.0), ("t", 2, "k80", 3.0)]
        await stage.do(stage.service.declare_throughputs(figures, pairs=[], actor="boss"))
        await stage.wait(4)
        after = await ranks_of(stage)
        await stage.crash()
        await stage.start()
        await stage.wait(4)
        return before, after, await ranks_of(stage), len(stage.leases())

    before, after, restarted, leases = played(story, nodes=TWO_TYPES)
    assert before
    assert after == restarted == before
    assert leases == 1


def test_a_measured_rate_is_the_gangs_and_outlives_a_restart():
    async def story(stage):
        await stage.job("mixed", **MIXED)
        await stage.wait(130)
        known = stage.state.knowledge
        key = known.key(stage.state.jobs.by_id["mixed"].profile)

        def ways():
            known = stage.state.knowledge
            found = known.ways(key, stage.state.engine.cluster)
            return {
                way.worker_type: (way.estimate.steps_per_s, way.estimate.source.value)
                for way in found
            }

        before = ways()
        stored = known.dump(Part.MIXED_GANGS)
        await stage.crash()
        await stage.start()
        again = stage.state.knowledge.dump(Part.MIXED_GANGS)
        return before, stored, again, ways()

    before, stored, again, after = played(story, nodes=TWO_TYPES)
    rate, source = before.pop("1 x k80 + 1 x v100")
    assert rate == pytest.approx(1.0, rel=0.05), "the simulated nodes do a step a second"
    assert source == "measured"
    assert before == {"v100": (4.0, "declared"), "k80": (2.0, "declared")}
    assert [gang[:2] for gang in stored["gangs"]] == [["t", [["k80", 1], ["v100", 1]]]]
    assert [gang[:2] for gang in again["gangs"]] == [gang[:2] for gang in stored["gangs"]]
    assert after["1 x k80 + 1 x v100"] == (pytest.approx(rate, rel=0.01), source)


def test_a_quota_of_each_type_lets_a_gang_of_both_in():
    async def story(stage):
        quota = {"max_workers_of": {"v100": 1, "k80": 1}}
        answer = await stage.request("PUT", "/v1/projects/p", json=quota)
        assert answer.is_success, answer.text
        await stage.job("mixed", **MIXED | {"project": "p"})
        await stage.wait(2)
        return len(stage.leases())

    assert played(story, configured(), nodes=TWO_TYPES) == 1


def test_usage_and_budgets_count_all_workers_of_a_gang():
    async def story(stage):
        await stage.job("mixed", **MIXED | {"total_steps": 20.0})
        await stage.wait(60)
        answer = await stage.request("GET", "/v1/usage", params={"by": "worker_type"})
        (held,) = stage.leases()
        return answer.json(), held[3] - held[2]

    usage, held_s = played(story, nodes=TWO_TYPES)
    rows = [row for row in usage["usage"] if row["worker_s"]]
    assert [row["worker_type"] for row in rows] == [""]
    assert rows[0]["worker_s"] == pytest.approx(2 * held_s)
