"""What becomes of pods on their nodes: evicted, not admitted, slow to leave, out of sight."""

from __future__ import annotations

import itertools
import signal
import time

from installation import ENDED, JOBS, eventually
from proof import check
from scenes import ONE_ROUND, PODS, await_steps, one_node, other_than, two_nodes


def test_a_pod_that_somebody_deletes_is_made_again_under_a_new_lease(live, admin):
    kubelets, made = live([one_node()])
    job = made.submit("long", steps=120)
    run = await_steps(kubelets, job)
    admin.delete(f"{PODS}/{run.pod}", gracePeriodSeconds=1)
    made.await_end(job)
    check(kubelets, steps={job: 120})
    assert len(kubelets.runs_of(job)) >= 2
    assert "another user has deleted the pod" in {a["message"] for a in made.attempts(job)}
    assert made.job(job)["failures"] == 0


def test_an_evicted_pod_is_no_failure_of_the_job(live):
    kubelets, made = live([one_node()])
    job = made.submit("long", steps=120)
    run = await_steps(kubelets, job)
    kubelets.evict(run.pod)
    made.await_end(job)
    check(kubelets, steps={job: 120})
    assert made.job(job)["failures"] == 0
    assert any("Evicted" in a["message"] for a in made.attempts(job))


def test_a_container_that_was_killed_for_its_memory_is_a_failure_that_says_so(live):
    kubelets, made = live([one_node()])
    job = made.submit("greedy", "oom_at=8", steps=40)
    made.await_end(job)
    check(kubelets, steps={job: 40})
    assert made.job(job)["failures"] == 1
    assert any("memory" in a["message"] or "OOM" in a["message"] for a in made.attempts(job))


def test_a_program_that_fails_is_tried_again_from_its_checkpoint(live):
    kubelets, made = live([one_node()])
    job = made.submit("flaky", "fail_at=13", steps=40)
    made.await_end(job)
    check(kubelets, steps={job: 40})
    assert made.job(job)["failures"] == 1
    ledger = kubelets.volumes[job]
    assert [token for _, token in ledger[:10]] == [ledger[0][1]] * 10
    assert ledger[10][1] > ledger[9][1], "what was saved was not done again"


def test_a_pod_that_the_kubelet_does_not_admit_is_tried_again(live):
    node = one_node()
    node.refusals.append(("UnexpectedAdmissionError", "Allocate failed: no healthy devices"))
    kubelets, made = live([node])
    job = made.submit("short", steps=30)
    made.await_end(job)
    check(kubelets, steps={job: 30})
    assert made.job(job)["failures"] == 0
    assert any("UnexpectedAdmissionError" in a["message"] for a in made.attempts(job))


def test_a_job_that_does_not_leave_is_killed_before_another_has_its_worker(live):
    kubelets, made = live([one_node()])
    jobs = [made.submit(f"job-{n}", "stubborn=1", steps=10_000) for n in range(2)]
    eventually("both have run", lambda: all(kubelets.runs_of(job) for job in jobs), limit_s=90)
    first = kubelets.runs[0]
    assert first.forced
    assert first.code == 137
    for job in jobs:
        made.client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
    for job in jobs:
        made.await_end(job, status="cancelled")
    eventually("nothing runs", lambda: not kubelets.running())
    check(kubelets)
    assert all(made.job(job)["failures"] == 0 for job in jobs)


def test_a_node_that_confirms_ends_late_is_waited_for(live):
    kubelets, made = live([one_node(end_s=2.0, start_s=0.5)])
    jobs = {made.submit(f"job-{n}", steps=80): 80 for n in range(2)}
    for job in jobs:
        made.await_end(job, limit_s=120)
    check(kubelets, steps=jobs)


def test_a_node_that_dies_loses_its_jobs_to_another(live):
    kubelets, made = live(two_nodes())
    job = made.submit("long", steps=150)
    run = await_steps(kubelets, job)
    made.agents[run.node].end(signal.SIGKILL)
    kubelets.lose(run.node, crash=True)
    other = other_than(run.node)
    eventually(
        "it goes on elsewhere", lambda: [r for r in kubelets.running(job) if r.node == other]
    )
    kubelets.find(run.node)
    made.start_agent(run.node)
    made.await_end(job)
    check(kubelets, steps={job: 150})
    assert made.job(job)["failures"] == 0


def test_on_a_node_out_of_sight_the_guard_ends_the_job_before_it_goes_on_elsewhere(live):
    """Neither the agent nor the kubelet reaches the API server; the job would go on unseen."""
    long = {"leases.margin_s": 10, "leases.node_timeout_s": 12}
    long |= {"engine.round_length_s": 24, "engine.plan_lead_s": 14}
    kubelets, made = live(two_nodes(), guard_image="registry.example/agent:1", settings=long)
    job = made.submit("long", "step_s=0.2", "stubborn=1", steps=400)
    run = await_steps(kubelets, job)
    other = other_than(run.node)
    made.agents[run.node].process.send_signal(signal.SIGSTOP)
    kubelets.lose(run.node, crash=False)
    eventually(
        "it goes on elsewhere",
        lambda: [r for r in kubelets.running(job) if r.node == other],
        limit_s=90,
    )
    assert run.forced, "nobody has ended it"
    kubelets.find(run.node)
    made.agents[run.node].process.send_signal(signal.SIGCONT)
    time.sleep(2.0)
    made.client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
    made.await_end(job, status="cancelled")
    eventually("it has left", lambda: not kubelets.running(job))
    check(kubelets)


def test_a_pod_on_a_node_that_answers_no_more_is_removed_unconfirmed_where_its_job_says_so(
    live, admin
):
    kubelets, made = live([one_node(gpus=2)], force_after_s=2, settings=ONE_ROUND)
    careful = made.submit("careful", steps=10_000)
    bold = made.submit("bold", steps=10_000, kubernetes={"force_delete": True})
    pods = {job: await_steps(kubelets, job).pod for job in (careful, bold)}
    kubelets.lose("ada", crash=True)
    for job in (careful, bold):
        made.client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
    made.await_end(bold, status="cancelled")
    (left,) = admin.pods(JOBS)
    assert left["metadata"]["name"] == pods[careful]
    assert left["metadata"]["deletionTimestamp"]
    assert made.job(careful)["status"] not in ENDED, "nobody knows whether it has ended"
    kubelets.find("ada")
    made.await_end(careful, status="cancelled")
    check(kubelets)


def test_nothing_new_comes_to_a_cordoned_node_and_what_runs_there_goes_on(live, admin):
    kubelets, made = live(two_nodes(gpus=2), settings=ONE_ROUND)
    job = made.submit("long", steps=300)
    run = await_steps(kubelets, job)
    admin.patch(f"/api/v1/nodes/{run.node}", {"spec": {"unschedulable": True}})
    eventually("it is told", lambda: "cordoned" in made.client.get("/v1/nodes").text)
    later = {made.submit(f"later-{n}", steps=10): 10 for n in range(4)}
    for name in (*later, job):
        made.await_end(name)
    check(kubelets, steps=later | {job: 300})
    assert len(kubelets.runs_of(job)) == 1
    assert {r.node for r in kubelets.runs if r.job != job} == {other_than(run.node)}


def test_a_job_that_is_drained_off_its_node_never_comes_back_to_it(live, admin):
    """`kubectl drain`: cordon, and evict at once. The agent looks at its node every 10 s."""
    kubelets, made = live(two_nodes(), settings=ONE_ROUND)
    job = made.submit("moved", steps=200)
    run = await_steps(kubelets, job)
    admin.patch(f"/api/v1/nodes/{run.node}", {"spec": {"unschedulable": True}})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": run.pod}}
    admin.create(f"{PODS}/{run.pod}/eviction", eviction)
    made.await_end(job)
    check(kubelets, steps={job: 200})
    assert [r.node for r in kubelets.runs_of(job)] == [run.node, other_than(run.node)]
    assert len(made.attempts(job)) == 2
    assert made.job(job)["failures"] == 0


def test_a_gpu_that_another_tenants_pod_holds_is_let_to_nobody(live, admin):
    kubelets, made = live([one_node(gpus=2)])
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    spec = {"nodeName": "ada", "containers": [{"name": "x", "image": "x", "resources": limits}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tenant"}, "spec": spec}
    foreign = "/api/v1/namespaces/default/pods"
    admin.create(foreign, pod)
    try:
        eventually("it counts", lambda: "taken by pod" in made.client.get("/v1/nodes").text)
        jobs = {made.submit(f"job-{n}", steps=60): 60 for n in range(2)}
        for job in jobs:
            made.await_end(job)
        check(kubelets, steps=jobs)
        ordered = sorted(kubelets.runs, key=lambda run: run.begin_s)
        for one, next_one in itertools.pairwise(ordered):
            assert one.end_s <= next_one.begin_s, "the tenant's GPU was used"
    finally:
        admin.delete(f"{foreign}/tenant", gracePeriodSeconds=0)


def test_a_restart_of_the_device_plugin_ends_no_job(live, admin):
    kubelets, made = live([one_node(gpus=2)])
    job = made.submit("long", "step_s=0.1", steps=300)
    run = await_steps(kubelets, job)

    def offer(count):
        path = f"/api/v1/nodes/{run.node}/status"
        admin.patch(path, {"status": {"allocatable": {"nvidia.com/gpu": str(count)}}})

    def missing():
        (node,) = made.client.get("/v1/nodes").raise_for_status().json()["nodes"]
        return [worker for worker in node["workers"] if worker["problem"]]

    offer(0)
    (idle,) = eventually("the idle worker is missing", missing)
    assert "nvidia.com/gpu" in idle["problem"]
    await_steps(kubelets, job, 60)
    offer(2)
    eventually("all workers are back", lambda: not missing())
    made.await_end(job, limit_s=120)
    check(kubelets, steps={job: 300})
    assert len(kubelets.runs_of(job)) == 1


def test_a_pod_that_loses_a_label_runs_once_and_has_the_label_again(live, admin):
    kubelets, made = live(two_nodes())
    job = made.submit("long", steps=120)
    run = await_steps(kubelets, job)
    admin.patch(f"{PODS}/{run.pod}", {"metadata": {"labels": {"leasehold.dev/node": None}}})
    eventually(
        "the label is back",
        lambda: "leasehold.dev/node" in admin.get(f"{PODS}/{run.pod}")["metadata"]["labels"],
    )
    made.await_end(job)
    check(kubelets, steps={job: 120})
    assert len(kubelets.runs_of(job)) == 1
