"""Jobs that give their model: plans of their leases, learned rates, plans given up, a restart."""

import json

import pytest

from leasehold_testing.played import configured, played
from planner.plans.plan import Plan
from scheduler.domain.lease_life import EndReason
from scheduler.domain.throughputs.knowledge import Part
from simulator.world.nodes import Mishap

NODES = {"n0": ("v100", "v100"), "n1": ("t4", "t4")}
GPT2_XL = {
    "batch": 64,
    "config": {
        "model_type": "gpt2",
        "n_layer": 48,
        "n_embd": 1600,
        "n_head": 25,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
}
PLANNED = {"model": GPT2_XL, "scale_factor": 2, "total_steps": 1e6, "throughputs": {}}


async def leases_of(stage):
    return [lease for node in NODES for lease in await stage.launched(node)]


async def plans_of(stage):
    """Return the plan of each lease by job."""
    leases = await leases_of(stage)
    return {lease.job_id: Plan(**json.loads(lease.plan)) for lease in leases}


async def sources_of(stage, job):
    """Return steps/s and their source for each worker type that a job may run on."""
    known = stage.state.knowledge
    key = known.key(stage.state.jobs.by_id[job].profile)
    ways = known.ways(key, stage.state.engine.cluster)
    return {way.worker_type: (way.estimate.steps_per_s, way.estimate.source) for way in ways}


def test_a_lease_has_the_plan_for_its_workers_and_the_faster_ones_are_chosen():
    async def story(stage):
        await stage.job("gpt", **PLANNED)
        await stage.wait(2)
        shown = (await stage.request("GET", "/v1/jobs/gpt")).json()
        tried = await stage.request("POST", "/v1/jobs?dry_run=true", json=request("other"))
        return await plans_of(stage), await sources_of(stage, "gpt"), shown, tried.json()

    plans, sources, shown, tried = played(story, nodes=NODES)
    assert plans["gpt"].workers == 2
    assert shown["worker_type"] == "v100"
    assert shown["spec"]["model"] == GPT2_XL
    assert sources["v100"][0] > 1.5 * sources["t4"][0] > 0
    assert {source for _, source in sources.values()} == {"estimated"}
    ways = {way["worker_type"]: way for way in tried["configurations"]}
    assert ways["v100"]["steps_per_s"] == pytest.approx(sources["v100"][0])
    assert Plan(**json.loads(ways["t4"]["plan"])).workers == 2


def test_an_explanation_has_the_plan_that_runs_and_what_other_workers_would_give():
    async def story(stage):
        await stage.job("gpt", **PLANNED | {"scale_factor": [1, 2]})
        await stage.job("more", **PLANNED)
        await stage.job("last", **PLANNED)
        await stage.wait(2)
        found = {
            name: (await stage.request("GET", f"/v1/jobs/{name}/explain?forecast=false")).json()
            for name in ("gpt", "more", "last")
        }
        return found, {lease.job_id: lease.plan for lease in await leases_of(stage)}

    found, plans = played(story, nodes=NODES)
    assert len(plans) == 2
    for name, one in found.items():
        assert one["plan"] == plans.get(name, "")
        rates = [way["steps_per_s"] for way in one["configurations"]]
        assert rates == sorted(rates, reverse=True)
        assert len(rates) == (4 if name == "gpt" else 2)
        assert name not in plans or one["plan"] in {way["plan"] for way in one["configurations"]}


def request(name, **more):
    return {"name": name, "command": ["train"]} | PLANNED | more


def test_measured_rates_correct_predictions_and_outlive_a_restart():
    async def story(stage):
        await stage.job("gpt", **PLANNED | {"worker_types": ["v100"], "scale_factor": [1, 2]})
        await stage.wait(2)
        key = stage.state.knowledge.key(stage.state.jobs.by_id["gpt"].profile)
        before = stage.state.knowledge.ways(key, stage.state.engine.cluster)
        await stage.wait(130)
        after = stage.state.knowledge.ways(key, stage.state.engine.cluster)
        plans = await plans_of(stage)
        await stage.crash()
        await stage.start()
        again = stage.state.knowledge.ways(key, stage.state.engine.cluster)
        return before, after, again, plans

    before, after, again, plans = played(story, nodes=NODES)
    held = plans["gpt"].workers
    one, other = (next(w for w in after if (w.count == held) is same) for same in (True, False))
    assert one.estimate.source == "measured"
    assert one.estimate.steps_per_s == pytest.approx(1.0, rel=0.05), "of simulated nodes"
    assert other.estimate.source == "estimated"
    predicted = {way.count: way.estimate.steps_per_s for way in before}
    ratio = one.estimate.measured / predicted[held]
    assert other.estimate.steps_per_s == pytest.approx(ratio * predicted[other.count])
    assert [way.estimate.steps_per_s for way in again] == pytest.approx(
        [way.estimate.steps_per_s for way in after]
    )


def test_a_plan_that_runs_out_of_memory_is_given_up_for_one_with_less():
    async def story(stage):
        stage.world.mishaps["gpt"] = [Mishap(steps=3.0, end=EndReason.OOM)]
        await stage.job("gpt", **PLANNED | {"worker_types": ["v100"]})
        await stage.wait(2)
        first = await plans_of(stage)
        await stage.wait(400)
        second = await plans_of(stage)
        await stage.crash()
        await stage.start()
        await stage.wait(4)
        stored = stage.state.knowledge.dump(Part.PLANS)
        return first, second, await plans_of(stage), stored

    first, second, third, stored = played(story, nodes=NODES)
    assert first["gpt"].workers == second["gpt"].workers == 2
    assert first["gpt"] != second["gpt"] == third["gpt"]
    ((job_type, worker_type, room),) = stored["room"]
    assert job_type.startswith("default/gpt@")
    assert (worker_type, 0.5 <= room < 1) == ("v100", True)


def test_a_job_whose_model_fits_nowhere_is_refused_and_told_by_how_much():
    huge = GPT2_XL | {"config": GPT2_XL["config"] | {"n_embd": 16000, "n_layer": 300}}

    async def story(stage):
        job = request("huge", model=huge)
        return await stage.request("POST", "/v1/jobs", json=job)

    answer = played(story, configured(), nodes=NODES)
    assert answer.status_code == 422
    assert "no plan of its model fits on" in answer.json()["detail"]
    assert "2 x v100, 2 x t4: " in answer.json()["detail"]
    assert "GB too much" in answer.json()["detail"]


def test_a_precision_that_no_worker_type_has_is_refused_by_name():
    async def story(stage):
        job = request("odd", model=GPT2_XL | {"precision": "fp3"})
        return await stage.request("POST", "/v1/jobs", json=job)

    answer = played(story, configured(), nodes=NODES)
    assert answer.status_code == 422
    assert "precision is 'fp3'; the accelerator has " in answer.json()["detail"]
