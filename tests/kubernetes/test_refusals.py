"""What keeps a pod from starting: images, quotas, rights, admission. Reports and waits."""

from __future__ import annotations

import pytest
from control_plane import ApiError
from installation import JOBS, eventually
from proof import check
from scenes import one_node, two_nodes
from webhook import Webhook


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
        if rule["verbs"] != ["create"]
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


def test_a_missing_right_at_the_start_is_waited_for_as_well(live, admin):
    """The roles are bound after the agents have started, or an administrator has removed one."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    (binding,) = (
        item for item in admin.get(path)["items"] if item["metadata"]["name"].endswith("-agent")
    )
    meta = {key: binding["metadata"][key] for key in ("name", "labels")}
    kubelets, made = live([one_node()])
    agent = made.agents["ada"]
    agent.end()
    admin.delete(f"{path}/{meta['name']}")
    try:
        agent.start()
        eventually("it is told", lambda: "cannot begin yet" in agent.text())
        assert 'cannot get resource "nodes"' in agent.text()
        assert agent.alive
    finally:
        kept = {"kind": "ClusterRoleBinding", "metadata": meta}
        admin.create(path, kept | {key: binding[key] for key in ("roleRef", "subjects")})
    job = made.submit("short", steps=30)
    made.await_end(job)
    check(kubelets, steps={job: 30})
    assert "Traceback" not in agent.text()


@pytest.fixture
def webhook(chart_plane, admin):
    """A webhook that looks at every pod of a job before it is made."""
    with Webhook(chart_plane) as webhook:
        webhook.register(admin, JOBS)
        yield webhook
        webhook.remove(admin)


def test_what_a_webhook_refuses_fails_with_its_words(live, webhook):
    kubelets, made = live([one_node()])
    webhook.refuses = "images of that team are not signed"
    job = made.submit("unsigned", steps=5, max_failures=1)
    made.await_end(job, status="failed")
    for attempt in made.attempts(job):
        assert webhook.refuses in attempt["message"]
        assert "denied the request" in attempt["message"]
    check(kubelets)
    assert not kubelets.runs


def test_a_webhook_that_answers_no_more_is_told_and_waited_for(live, webhook):
    kubelets, made = live([one_node()], start_most_s=60)
    webhook.broken = True
    job = made.submit("waits", steps=30)
    told = eventually("it is told", lambda: "failed calling webhook" in made.explain(job))
    assert told
    webhook.broken = False
    made.await_end(job)
    check(kubelets, steps={job: 30})
    assert made.job(job)["failures"] == 0
