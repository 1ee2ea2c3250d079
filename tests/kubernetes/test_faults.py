"""Whatever fails between agents and the API server: nothing runs twice, nothing is lost."""

from __future__ import annotations

import signal
import time

import pytest
from control_plane import ApiError
from fake_kubelets import FakeNode
from flaky_proxy import FlakyProxy
from installation import JOBS, eventually
from proof import check

PODS = f"/api/v1/namespaces/{JOBS}/pods"


def one_node(**changes):
    return FakeNode(**{"name": "ada", "address": "127.0.11.1", "gpus": 1} | changes)


def two_nodes(**changes):
    return [one_node(**changes), one_node(name="bert", address="127.0.11.2", **changes)]


@pytest.fixture
def admin(chart_plane):
    api = chart_plane.api()
    yield api
    api.close()


@pytest.fixture
def proxy(chart_plane):
    proxy = FlakyProxy(chart_plane)
    proxy.start()
    yield proxy
    proxy.stop()


def await_steps(kubelets, job, count=5, *, attempt=1):
    """Wait until a job's container of that attempt or a later one has done so many steps."""

    def done():
        return [
            container
            for container in kubelets.containers(job)
            if int(container.env["LEASEHOLD_ATTEMPT"]) >= attempt and container.steps >= count
        ]

    eventually(f"{job} runs", done)
    return kubelets.running(job)[0]


def test_a_killed_agent_finds_its_pods_again(live):
    kubelets, made = live([one_node()])
    job = made.submit("long", steps=150)
    run = await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGKILL)
    time.sleep(1.0)
    made.start_agent("ada")
    made.await_end(job)
    check(kubelets, steps={job: 150})
    assert [r.uid for r in kubelets.runs_of(job)] == [run.uid], "it was not adopted"
    assert "adopted pod" in made.agents["ada"].text()


def test_an_agent_that_has_lost_its_files_finds_its_pods_by_their_labels(live):
    kubelets, made = live([one_node()])
    job = made.submit("long", steps=150)
    run = await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGKILL)
    (made.folder / "ada").rename(made.folder / "lost")  # an emptyDir goes with its pod
    made.start_agent("ada")
    made.await_end(job)
    check(kubelets, steps={job: 150})
    assert [r.uid for r in kubelets.runs_of(job)] == [run.uid]


def test_a_job_that_ends_while_its_agent_is_away_has_ended_well(live):
    kubelets, made = live([one_node()])
    job = made.submit("short", steps=40)
    await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGKILL)
    eventually("it has ended", lambda: not kubelets.running(job))
    made.start_agent("ada")
    made.await_end(job)
    check(kubelets, steps={job: 40})


def test_jobs_outlive_a_restart_of_the_api_server(live, chart_plane):
    kubelets, made = live(two_nodes())
    jobs = {made.submit(f"job-{n}", steps=150): 150 for n in range(3)}
    await_steps(kubelets, next(iter(jobs)))
    for kill in (True, False):
        chart_plane.stop_api_server(kill=kill)
        time.sleep(2.0)
        chart_plane.start_api_server()
        time.sleep(2.0)
    for job in jobs:
        made.await_end(job, limit_s=90)
    check(kubelets, steps=jobs)
    assert all(agent.alive for agent in made.agents.values())


def test_a_watch_that_has_expired_is_begun_anew(live, admin, chart_plane, proxy):
    kubelets, made = live([one_node()], api_url=proxy.url)
    job = made.submit("long", steps=150)
    await_steps(kubelets, job)
    proxy.cut = True
    proxy.break_streams()
    (pod,) = admin.pods(JOBS)
    admin.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=1)
    eventually("it is gone", lambda: not admin.pods(JOBS))
    chart_plane.stop_api_server()
    chart_plane.start_api_server()  # its memory of what happened begins now
    chart_plane.forget_history()
    proxy.cut = False
    made.await_end(job, limit_s=90)
    check(kubelets, steps={job: 150})
    assert proxy.expired >= 1, "no watch was told that its version is too old"
    assert len(kubelets.runs_of(job)) >= 2


@pytest.mark.parametrize(
    ("status", "every"), [(500, 3), (429, 3), (-1, 4)], ids=["500s", "throttling", "lost answers"]
)
def test_failing_requests_change_nothing(live, proxy, status, every):
    kubelets, made = live(two_nodes(), api_url=proxy.url)
    proxy.fail_with, proxy.fail_every = status, every
    jobs = {made.submit(f"job-{n}", steps=60): 60 for n in range(4)}
    for job in jobs:
        made.await_end(job, limit_s=120)
    proxy.fail_every = 0
    check(kubelets, steps=jobs)
    assert status == -1 or proxy.answered[status] >= 5


def test_a_pod_that_somebody_deletes_is_made_again_under_a_new_lease(live, admin):
    kubelets, made = live([one_node()])
    job = made.submit("long", steps=120)
    run = await_steps(kubelets, job)
    admin.delete(f"{PODS}/{run.pod}", gracePeriodSeconds=1)
    made.await_end(job)
    check(kubelets, steps={job: 120})
    assert len(kubelets.runs_of(job)) >= 2
    assert "somebody else has deleted the pod" in {a["message"] for a in made.attempts(job)}
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


def test_a_pod_that_the_kubelet_does_not_admit_is_tried_again(live):
    node = one_node()
    node.refusals.append(("UnexpectedAdmissionError", "Allocate failed: no healthy devices"))
    kubelets, made = live([node])
    job = made.submit("short", steps=30)
    made.await_end(job)
    check(kubelets, steps={job: 30})
    assert made.job(job)["failures"] == 0
    assert any("UnexpectedAdmissionError" in a["message"] for a in made.attempts(job))


def test_an_image_that_cannot_be_pulled_is_told_and_waited_for(live):
    kubelets, made = live([one_node()], start_most_s=60)
    kubelets.broken_images.add("registry.example/missing:1")
    job = made.submit("typo", steps=30, image="registry.example/missing:1")
    eventually("it is told", lambda: "ImagePullBackOff" in made.explain(job))
    kubelets.broken_images.clear()
    made.await_end(job)
    check(kubelets, steps={job: 30})


def test_an_image_that_is_never_there_ends_the_job(live):
    kubelets, made = live([one_node()], start_most_s=2)
    kubelets.broken_images.add("registry.example/missing:1")
    job = made.submit("typo", steps=30, image="registry.example/missing:1", max_failures=1)
    made.await_end(job, status="failed", limit_s=90)
    assert any("ImagePullBackOff" in a["message"] for a in made.attempts(job))
    check(kubelets)
    assert not kubelets.runs


def test_a_job_that_does_not_leave_is_killed_before_another_has_its_worker(live):
    kubelets, made = live([one_node()])
    jobs = {made.submit(f"job-{n}", "stubborn=1", steps=100): 100 for n in range(2)}
    for job in jobs:
        made.await_end(job, limit_s=180)
    check(kubelets, steps=jobs)
    assert any(run.forced for run in kubelets.runs)


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
    other = {"ada": "bert", "bert": "ada"}[run.node]
    eventually(
        "it goes on elsewhere", lambda: [r for r in kubelets.running(job) if r.node == other]
    )
    kubelets.find(run.node)
    made.start_agent(run.node)
    made.await_end(job)
    check(kubelets, steps={job: 150})
    assert made.job(job)["failures"] == 0


def test_a_gang_over_two_nodes_finds_and_leaves_one_another(live):
    kubelets, made = live(two_nodes())
    gang = made.submit("gang", steps=100, scale_factor=2)
    await_steps(kubelets, gang)
    single = made.submit("single", steps=60)
    for job in (gang, single):
        made.await_end(job, limit_s=150)
    check(kubelets, steps={gang: 100, single: 60})
    runs = kubelets.runs_of(gang)
    for attempt in {run.attempt for run in runs}:
        members = [run for run in runs if run.attempt == attempt]
        assert {(m.node, m.rank) for m in members} in (
            {("ada", 0), ("bert", 1)}, {("ada", 1), ("bert", 0)},
        )  # fmt: skip


def test_a_full_quota_is_told_and_waited_for(live, admin):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    path = f"/api/v1/namespaces/{JOBS}/resourcequotas"
    admin.create(path, quota | {"spec": {"hard": {"requests.nvidia.com/gpu": "1"}}})
    try:
        eventually("it counts", lambda: admin.get(f"{path}/small").get("status", {}).get("used"))
        kubelets, made = live(two_nodes(), start_most_s=60)
        jobs = {made.submit(f"job-{n}", steps=100): 100 for n in range(2)}
        eventually("it is told", lambda: any("QuotaExceeded" in made.explain(j) for j in jobs))
        for job in jobs:
            made.await_end(job, limit_s=150)
        check(kubelets, steps=jobs)
        assert all(made.job(job)["failures"] == 0 for job in jobs)
    finally:
        admin.delete(f"{path}/small")


def test_a_missing_right_is_said_clearly_and_no_loop_of_crashes(live, admin):
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{JOBS}/roles/lh-leasehold-agent"
    found = admin.get(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{JOBS}/roles"
    )["items"]  # fmt: skip
    (role,) = (item for item in found if "agent" in item["metadata"]["name"])
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{JOBS}/roles/{role['metadata']['name']}"
    kubelets, made = live([one_node()], start_most_s=60)
    without = [
        rule | {"verbs": [verb for verb in rule["verbs"] if verb != "create"]}
        for rule in role["rules"]
    ]
    admin.patch(path, {"rules": without})
    try:
        job = made.submit("denied", steps=30)
        told = eventually(
            "it is told", lambda: "Forbidden" in made.explain(job) and made.explain(job)
        )
        assert 'cannot create resource \\"pods\\"' in told
        assert made.agents["ada"].alive
        assert "see the Role of this agent" in made.agents["ada"].text()
        assert "Traceback" not in made.agents["ada"].text()
    finally:
        admin.patch(path, {"rules": role["rules"]})
    made.await_end(job)
    check(kubelets, steps={job: 30})
    assert made.job(job)["failures"] == 0


def test_what_an_admission_policy_refuses_fails_with_its_words(live, admin):
    base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["CREATE"],
    }
    words = "images come from registry.example only"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "registry"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [
                {
                    "expression": "object.spec.containers.all(c, !c.image.startsWith('evil/'))",
                    "message": words,
                }
            ],
        },
    }
    spec = {"policyName": "registry", "validationActions": ["Deny"]}
    binding = policy | {"kind": "ValidatingAdmissionPolicyBinding", "spec": spec}
    admin.create(f"{base}ies", policy)
    admin.create(f"{base}ybindings", binding)
    try:
        probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}}
        probe["spec"] = {"containers": [{"name": "c", "image": "evil/x"}]}

        def applied():
            try:
                admin.ask("POST", "/api/v1/namespaces/default/pods", probe, dryRun="All")
            except ApiError as error:
                return words in str(error)
            return False

        eventually("the policy is applied", applied)
        kubelets, made = live([one_node()])
        job = made.submit("evil", steps=5, image="evil/miner", max_failures=1)
        made.await_end(job, status="failed")
        assert any(words in attempt["message"] for attempt in made.attempts(job))
        check(kubelets)
        assert not kubelets.runs
    finally:
        admin.delete(f"{base}ybindings/registry")
        admin.delete(f"{base}ies/registry")


def test_on_a_node_out_of_sight_the_guard_ends_the_job_before_it_goes_on_elsewhere(live):
    """Neither the agent nor the kubelet reaches anybody; the job would go on unseen."""
    long = {"leases.margin_s": 10, "leases.node_timeout_s": 12}
    long |= {"engine.round_length_s": 24, "engine.plan_lead_s": 14}
    kubelets, made = live(two_nodes(), guard_image="registry.example/agent:1", settings=long)
    job = made.submit("long", "step_s=0.2", "stubborn=1", steps=400)
    run = await_steps(kubelets, job)
    other = {"ada": "bert", "bert": "ada"}[run.node]
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
