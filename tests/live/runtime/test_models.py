"""Jobs that give their model: plans of their leases, learned rates, plans given up, a restart."""

import inspect
import json
from dataclasses import replace

import pytest

from leasehold_testing.played import configured, played
from planner.planned import _Plans, find_plan
from planner.plans.plan import Plan
from scheduler.control.facts.requests import JobAction, Submission
from scheduler.control.facts.specs import spec_from_json
from scheduler.domain.lease_life import MEMORY_ERROR, EndReason
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


LACKS_MEMORY = Mishap(steps=3.0, end=EndReason.OOM, message=MEMORY_ERROR)


def rooms_of(stage):
    """Return (job type, worker type) -> the part of the memory that its plans may fill."""
    dump = stage.state.knowledge.dump(Part.PLANS)
    return {(job_type, worker_type): room for job_type, worker_type, room in dump["room"]}


async def leases_of(stage):
    return [lease for node in stage.agents for lease in await stage.launched(node)]


async def plans_of(stage):
    """Return the plan of each lease by job."""
    leases = await leases_of(stage)
    return {lease.job_id: Plan(**json.loads(lease.plan)) for lease in leases}


async def sources_of(stage, job):
    """Return steps/s and their source for each worker type that a job may run on."""
    known = stage.state.knowledge
    key = known.key(stage.state.jobs.by_id[job].profile)
    ways = known.ways(key, stage.state.engine.present)
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
        before = stage.state.knowledge.ways(key, stage.state.engine.present)
        await stage.wait(130)
        after = stage.state.knowledge.ways(key, stage.state.engine.present)
        plans = await plans_of(stage)
        await stage.crash()
        await stage.start()
        again = stage.state.knowledge.ways(key, stage.state.engine.present)
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
        stage.world.mishaps["gpt"] = [LACKS_MEMORY]
        await stage.job("gpt", **PLANNED | {"worker_types": ["v100"]})
        await stage.wait(2)
        first = await plans_of(stage)
        await stage.wait(400)
        second = await plans_of(stage)
        await stage.crash()
        await stage.start()
        await stage.wait(4)
        return first, second, await plans_of(stage), rooms_of(stage)

    first, second, third, rooms = played(story, nodes=NODES)
    assert first["gpt"].workers == second["gpt"].workers == 2
    assert first["gpt"] != second["gpt"] == third["gpt"]
    (((job_type, worker_type), room),) = rooms.items()
    assert job_type.startswith("default/gpt@")
    assert (worker_type, 0.5 <= room < 1) == ("v100", True)


def test_lack_of_host_memory_gives_up_no_plan():
    async def story(stage):
        stage.world.mishaps["gpt"] = [Mishap(steps=3.0, end=EndReason.OOM)]
        await stage.job("gpt", **PLANNED | {"worker_types": ["v100"]})
        await stage.wait(400)
        return stage.store.job("gpt").attempts, rooms_of(stage)

    attempts, rooms = played(story, nodes=NODES)
    assert attempts == 2
    assert rooms == {}


def test_jobs_that_run_out_of_memory_together_give_up_one_plan():
    async def story(stage, names):
        for name in names:
            stage.world.mishaps[name] = [LACKS_MEMORY]
            await stage.job(name, **PLANNED | {"worker_types": ["v100"], "job_type": "gpt"})
        await stage.wait(400)
        return {name: stage.store.job(name).attempts for name in names}, rooms_of(stage)

    nodes = {"n0": ("v100", "v100"), "n1": ("v100", "v100")}
    _, one = played(lambda stage: story(stage, ["a"]), nodes=nodes)
    attempts, both = played(lambda stage: story(stage, ["a", "b"]), nodes=nodes)
    assert attempts == {"a": 2, "b": 2}
    assert both == one != {}


def test_figures_measured_under_a_plan_that_is_given_up_are_forgotten():
    async def story(stage):
        stage.world.mishaps["gpt"] = [replace(LACKS_MEMORY, steps=200.0)]
        await stage.job("gpt", **PLANNED | {"worker_types": ["v100"]})
        before = await sources_of(stage, "gpt")
        await stage.wait(199)
        measured = await sources_of(stage, "gpt")
        await stage.wait(4)
        return before, measured, await sources_of(stage, "gpt")

    before, measured, after = played(story, nodes=NODES)
    assert before["v100"][1] == after["v100"][1] == "estimated"
    assert measured["v100"][1] == "measured"
    assert after["v100"][0] < before["v100"][0], "the plan that takes less memory is slower"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_goes_on_under_the_plan_that_was_given_up_shows_no_throughput(restarts):
    async def story(stage):
        stage.world.mishaps["a"] = [LACKS_MEMORY]
        for name in ("a", "b"):
            await stage.job(name, **PLANNED | {"worker_types": ["v100"], "job_type": "gpt"})
        await stage.wait(8)
        if restarts:
            await stage.crash()
            await stage.start()
        await stage.do(stage.service.act(["a"], JobAction.HOLD, actor="me"))
        await stage.wait(300)
        return await sources_of(stage, "b"), {lease.job_id for lease in await leases_of(stage)}

    nodes = {"n0": ("v100", "v100"), "n1": ("v100", "v100")}
    sources, running = played(story, nodes=nodes)
    assert running == {"b"}
    assert sources["v100"][1] == "estimated"


def test_plans_are_found_before_decisions_need_them(monkeypatch):
    late = []

    def watched(model, hardware, place):
        if "plan_ahead" not in {frame.function for frame in inspect.stack()}:
            late.append(place)
        return find_plan(model, hardware, place)

    monkeypatch.setattr("planner.planned._PLANS", _Plans())
    monkeypatch.setattr("planner.planned.find_plan", watched)

    async def story(stage):
        stage.world.mishaps["gpt"] = [LACKS_MEMORY]
        await stage.job(
            "gpt", **PLANNED | {"worker_types": ["v100", "a100"], "scale_factor": [1, 2]}
        )
        await stage.wait(30)
        assert rooms_of(stage)
        stage.add_node("n2", *["a100"] * 4)
        await stage.wait(10)
        stage.remove_node("n2")
        await stage.wait(200)
        await stage.do(stage.service.remove_node("n2", actor="me"))
        await stage.wait(10)

    played(story, nodes=NODES)
    assert late == []


def test_forgotten_throughputs_are_forgotten_with_the_plans_that_ran_out_of_memory():
    async def story(stage):
        stage.world.mishaps["gpt"] = [LACKS_MEMORY]
        await stage.job("gpt", **PLANNED | {"worker_types": ["v100"]})
        await stage.wait(30)
        ((job_type, _),) = rooms_of(stage)
        answer = await stage.request("DELETE", "/v1/throughputs", params={"job_type": job_type})
        await stage.crash()
        await stage.start()
        return answer.status_code, rooms_of(stage)

    assert played(story, nodes=NODES) == (200, {})


@pytest.mark.parametrize("way", ["submit", "requeue"])
def test_after_a_restart_the_model_of_a_job_that_has_ended_is_planned_again(way):
    async def story(stage):
        await stage.job("gpt", **PLANNED | {"job_type": "gpt"})
        await stage.wait(10)
        await stage.do(stage.service.act(["gpt"], JobAction.CANCEL, actor="me"))
        await stage.wait(10)
        await stage.crash()
        await stage.start()
        await stage.wait(10)
        row = stage.store.job("gpt")
        if way == "requeue":
            await stage.do(stage.service.act(["gpt"], JobAction.REQUEUE, actor="me"))
        else:
            spec = replace(spec_from_json(row.spec), name="next")
            await stage.submit(Submission(spec=spec, owner="me"))
        await stage.wait(10)
        return row.status, await plans_of(stage)

    status, plans = played(story, nodes=NODES)
    assert status == "cancelled"
    assert [plan.workers for plan in plans.values()] == [2]


def test_plans_follow_the_largest_node():
    async def story(stage):
        await stage.job("gpt", **PLANNED | {"scale_factor": 4, "worker_types": ["v100"]})
        await stage.wait(2)
        before = await where_of(stage)
        stage.add_node("n2", *["v100"] * 4)
        await stage.wait(4)
        larger = await where_of(stage)
        stage.remove_node("n2")
        await stage.wait(120)
        await stage.do(stage.service.remove_node("n2", actor="me"))
        await stage.wait(2)
        return before, larger, await where_of(stage)

    async def where_of(stage):
        key = stage.state.knowledge.key(stage.state.jobs.by_id["gpt"].profile)
        (way,) = stage.state.knowledge.ways(key, stage.state.engine.present)
        table = stage.state.engine.table.profiles[stage.state.jobs.by_id["gpt"].profile]
        (shown,) = (one for one in table.configurations if one.demand[0])
        return way.locality, shown.locality, shown.throughput > 0

    nodes = {"n0": ("v100", "v100"), "n1": ("v100", "v100")}
    before, larger, after = played(story, nodes=nodes)
    assert before == after == ("any", "any", True)
    assert larger == ("consolidated", "consolidated", True)


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
