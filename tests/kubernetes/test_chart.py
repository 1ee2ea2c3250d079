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
    said = refused(agent.create, PODS, job_pod("token", "alpha", automountServiceAccountToken=True))
    assert "automountServiceAccountToken" in said or "serviceAccountToken: jobs get no" in said
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


def test_an_agent_reads_its_node_and_who_else_holds_gpus_there_but_no_pod_of_others(agent):
    assert agent.get("/api/v1/nodes/alpha")["metadata"]["name"] == "alpha"
    assert "forbidden" in refused(agent.get, "/api/v1/pods")
    assert "forbidden" in refused(agent.get, "/api/v1/namespaces/gpus/pods")
    maps = "/api/v1/namespaces/gpus/configmaps"
    own = "lh-leasehold-foreign-3"
    found = agent.ask("GET", maps, None, fieldSelector=f"metadata.name={own}")["items"]
    assert [item["metadata"]["name"] for item in found] == [own]
    assert "forbidden" in refused(agent.get, f"{maps}/lh-leasehold-config")
    assert "forbidden" in refused(agent.patch, f"{maps}/{own}", {"data": {"alpha": "{}"}})
    space = agent.get("/api/v1/namespaces/leasehold-jobs")
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_counter_reads_all_pods_and_writes_its_config_maps_alone(plane, admin):
    counter = plane.api(plane.account_token("gpus", "lh-leasehold-foreign"))
    try:
        assert "items" in counter.get("/api/v1/pods")
        maps = "/api/v1/namespaces/gpus/configmaps"
        counter.patch(f"{maps}/lh-leasehold-foreign-3", {"data": {"alpha": "{}"}})
        for call in (
            lambda: counter.patch(f"{maps}/lh-leasehold-config", {"data": {"x": "y"}}),
            lambda: counter.get("/api/v1/namespaces/gpus/secrets"),
            lambda: counter.create(PODS, job_pod("own", "alpha")),
        ):
            assert "forbidden" in refused(call)
    finally:
        counter.close()
    admin.patch(
        "/api/v1/namespaces/gpus/configmaps/lh-leasehold-foreign-3", {"data": {"alpha": None}}
    )


def container(**fields):
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"name": "job", "image": "train", "securityContext": context} | fields


def projected(**token):
    source = {"serviceAccountToken": {"path": "token"} | token}
    return {"volumes": [{"name": "t", "projected": {"sources": [source]}}]}


NOBODY = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Fields of a pod that the level `restricted` takes, and the policy of the chart does not.
HOSTILE = {
    "a token": (projected(), "no rights in the cluster"),
    "a token for others": (projected(audience="leasehold"), "no rights in the cluster"),
    "priority": ({"priorityClassName": "system-node-critical"}, "cluster's own pods"),
    "another scheduler": ({"schedulerName": "mine"}, "schedulerName"),
    "the guard": ({"shareProcessNamespace": True}, "guard"),
    "nobody else": ({"affinity": {"podAntiAffinity": {REQUIRED: [NOBODY]}}}, "off the node"),
    "claims": (
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        "outside of the lease",
    ),
    "all devices": (
        {
            "containers": [
                container(),
                container(name="spy", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
            ]
        },
        "chooses its devices",
    ),
    "all devices before": (
        {
            "initContainers": [
                container(name="spy", env=[{"name": "AMD_VISIBLE_DEVICES", "value": "all"}])
            ]
        },
        "chooses its devices",
    ),
    "devices by a mount": (
        {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [
                container(
                    volumeMounts=[
                        {"name": "v", "mountPath": "/var/run/nvidia-container-devices/all"}
                    ]
                )
            ],
        },
        "a mount chooses",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_agent_that_was_taken_over_makes_no_pod_that_templates_may_not_say(agent, name):
    changes, said = HOSTILE[name]
    await_answer(agent, changes, said)


def await_answer(api, changes, said, limit_s=240.0):
    """Wait until a pod is refused so: policies apply some moments after they were made."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        answer = None
        try:
            api.ask("POST", PODS, job_pod("hostile", "alpha", **changes), dryRun="All")
        except ApiError as error:
            answer = error
        if answer is not None:
            assert answer.code == 403, answer
            assert said in str(answer), answer
            return
        time.sleep(0.1)
    raise AssertionError("it was made")


@pytest.mark.usefixtures("agent")
def test_what_a_job_may_say_passes_both_policies(agent):
    devices = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    fine = {
        "containers": [
            container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "3"}]),
            container(name="board", env=devices),
        ],
        **projected(audience="sts.amazonaws.com"),
    }
    made = agent.ask("POST", PODS, job_pod("fine", "alpha", **fine), dryRun="All")
    assert made["metadata"]["name"] == "fine"


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
