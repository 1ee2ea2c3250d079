"""The chart on a real API server: installed by helm, and its rights as the accounts have them."""

from __future__ import annotations

import asyncio
import base64
import time

import pytest
from control_plane import ApiError
from helm_client import Helm

from leasehold.daemon.token_review import TokenReviewer

VALUES = """
scheduler: {image: {tag: dev}}
agent: {image: {tag: dev}}
admissionPolicy: {enabled: true}
networkPolicies: {scheduler: {enabled: true}, agent: {enabled: true}}
monitoring: {dashboard: {enabled: true}}
jobs: {resourceQuota: {enabled: true, hard: {pods: "50"}}}
"""


@pytest.fixture(scope="module")
def helm(plane):
    helm = Helm(plane, namespace="gpus", values=VALUES)
    helm.install("lh", "--dry-run=server")
    notes = helm.install("lh")
    assert "kubectl -n gpus port-forward service/lh-leasehold" in notes
    return helm


@pytest.fixture(scope="module")
def admin(plane, helm):
    api = plane.api()
    yield api
    api.close()


@pytest.fixture(scope="module")
def agent_pod(admin):
    """The pod of the agent on node alpha, as the DaemonSet's controller would make it."""
    for name in ("alpha", "beta"):
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        admin.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
    made = admin.get("/apis/apps/v1/namespaces/gpus/daemonsets/lh-leasehold-agent-gpu")
    template = made["spec"]["template"]
    spec = template["spec"] | {"nodeName": "alpha"}
    spec.pop("priorityClassName", None)
    meta = {"name": "agent-alpha", "labels": template["metadata"]["labels"]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return admin.create("/api/v1/namespaces/gpus/pods", body)


@pytest.fixture
def agent(plane, agent_pod):
    api = plane.api(plane.account_token("gpus", "lh-leasehold-agent", pod=agent_pod))
    await_policy(api)
    yield api
    api.close()


PODS = "/api/v1/namespaces/leasehold-jobs/pods"


def job_pod(name, node, **changes):
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{"name": "job", "image": "train", "securityContext": context}],
    }
    meta = {"name": name, "namespace": "leasehold-jobs"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec | changes}


def await_policy(api, limit_s=240.0):
    """Wait until the API server applies the admission policy: some moments after it was made."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            api.ask("POST", PODS, job_pod("other", "beta"), dryRun="All")
        except ApiError as error:
            if "own node only" in str(error):
                return
            if "error looking up service account" not in str(error):  # it is not made yet
                raise
        time.sleep(0.1)
    raise AssertionError("the policy is not applied")


def refused(call, *arguments):
    with pytest.raises(ApiError) as caught:
        call(*arguments)
    assert caught.value.code == 403
    return str(caught.value)


def test_an_agent_makes_notes_and_deletes_pods_of_its_own_node_and_of_no_other(admin, agent):
    made = agent.create(PODS, job_pod("own", "alpha"))
    assert made["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "alpha"}
    agent.patch(f"{PODS}/own", {"metadata": {"annotations": {"leasehold.dev/ending": "lease"}}})
    assert "nodeSelector kubernetes.io/hostname is beta" in refused(
        agent.create, PODS, job_pod("other", "beta")
    )
    assert "is missing" in refused(agent.create, PODS, job_pod("free", "alpha", nodeSelector={}))
    assert "spec.nodeName" in refused(
        agent.create, PODS, job_pod("forced", "alpha", nodeName="alpha")
    )
    assert "automountServiceAccountToken" in refused(
        agent.create, PODS, job_pod("token", "alpha", automountServiceAccountToken=True)
    )
    admin.create(PODS, job_pod("foreign", "beta"))
    assert "own node only" in refused(agent.ask, "DELETE", f"{PODS}/foreign", {})
    note = {"metadata": {"annotations": {"x": "y"}}}
    assert "own node only" in refused(agent.patch, f"{PODS}/foreign", note)
    agent.ask("DELETE", f"{PODS}/own", {"gracePeriodSeconds": 0})
    assert [pod["metadata"]["name"] for pod in agent.pods("leasehold-jobs")] == ["foreign"]


@pytest.mark.usefixtures("agent")  # the policy is in force
def test_a_token_that_names_no_node_makes_no_pod(plane):
    api = plane.api(plane.account_token("gpus", "lh-leasehold-agent"))
    try:
        assert "does not name its node" in refused(api.create, PODS, job_pod("own", "alpha"))
    finally:
        api.close()


def test_pods_that_are_not_restricted_are_refused_in_the_namespace_of_jobs(agent):
    said = refused(agent.create, PODS, job_pod("root", "alpha", securityContext={}))
    assert "violates PodSecurity" in said


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/namespaces/leasehold-jobs/secrets"),
        ("GET", "/api/v1/namespaces/gpus/secrets/lh-leasehold-admin"),
        ("POST", "/api/v1/namespaces/gpus/pods"),
        ("DELETE", "/api/v1/namespaces/gpus/pods/agent-alpha"),
        ("GET", "/api/v1/nodes"),
        ("PATCH", "/api/v1/nodes/alpha"),
        ("POST", "/api/v1/namespaces/leasehold-jobs/pods/foreign/exec"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
    ],
)
def test_an_agent_may_do_nothing_else(agent, method, path):
    assert "forbidden" in refused(agent.ask, method, path, None if method == "GET" else {})


def test_an_agent_reads_its_node_and_all_pods_there(agent):
    assert agent.get("/api/v1/nodes/alpha")["metadata"]["name"] == "alpha"
    found = agent.get("/api/v1/pods", fieldSelector="spec.nodeName=alpha")["items"]
    assert "agent-alpha" in {pod["metadata"]["name"] for pod in found}


def test_the_scheduler_learns_an_agents_node_from_the_token_of_its_pod(
    plane, agent_pod, admin, tmp_path
):
    def reviewer(account):
        (tmp_path / "token").write_text(plane.account_token("gpus", account))
        (tmp_path / "ca.crt").write_bytes(plane.authority.read_bytes())
        return TokenReviewer(
            account="gpus/lh-leasehold-agent",
            audience="leasehold",
            api_server=plane.url,
            credentials=tmp_path,
        )

    def node_of(token, account="lh-leasehold-scheduler"):
        return asyncio.run(reviewer(account).node_of(token))

    def token(account="lh-leasehold-agent", *, pod=agent_pod, audience="leasehold"):
        return plane.account_token("gpus", account, pod=pod, audience=audience)

    assert node_of(token()) == "alpha"
    assert node_of(token(audience="")) is None, "for the API server, not for us"
    assert node_of(token(pod=None)) is None, "of no pod"
    assert node_of(token("lh-leasehold-scheduler", pod=None)) is None, "another account's"
    assert node_of("a.b.c") is None
    with pytest.raises(OSError, match="403"):
        node_of(token(), account="default")
    stale = token()
    path = "/api/v1/namespaces/gpus/pods/agent-alpha"
    admin.ask("DELETE", path, {"gracePeriodSeconds": 0})
    assert node_of(stale) is None, "its pod is gone"


def test_an_upgrade_keeps_the_administrators_token_and_an_uninstallation_what_is_stored(
    admin, helm
):
    def token():
        secret = admin.get("/api/v1/namespaces/gpus/secrets/lh-leasehold-admin")
        return base64.b64decode(secret["data"]["token"])

    before = token()
    helm.upgrade("lh", "--set", "scheduler.config.engine.round_length_s=60")
    assert token() == before
    config = admin.get("/api/v1/namespaces/gpus/configmaps/lh-leasehold-config")
    assert "round_length_s = 60" in config["data"]["leasehold.toml"]
    helm("uninstall", "lh")
    assert token() == before
    kept = admin.get("/api/v1/namespaces/gpus/persistentvolumeclaims/lh-leasehold-state")
    assert kept["metadata"]["name"] == "lh-leasehold-state"
    assert admin.get("/api/v1/namespaces/leasehold-jobs")["status"]["phase"] == "Active"
    with pytest.raises(ApiError):
        admin.get("/apis/apps/v1/namespaces/gpus/deployments/lh-leasehold-scheduler")
    helm.install("lh")
    assert token() == before, "a new release takes over what the old one left"
