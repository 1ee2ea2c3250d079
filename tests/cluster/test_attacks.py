"""Hostile pods that really run: a job's, a captured agent's, and one that looks for secrets.

What templates may say is attacked in tests/redteam/test_hostile_pods.py, and admission in
tests/kubernetes/test_chart.py. Here is what comes after: pods with containers, kubelets, networks.
No network plugin of this cluster applies NetworkPolicies, so all refusals here are without them.
"""

from __future__ import annotations

import hashlib

import httpx
import pytest
from agent_routes import others_routes
from control_plane import Api, ApiError
from installed import JOBS, NAMESPACE
from loot import MARK
from machine import eventually
from pod_attacks import ATTACKS
from scene import PASSWORD, Scene, decoded

pytestmark = pytest.mark.redteam
PODS = f"/api/v1/namespaces/{JOBS}/pods"
#: Attacks of ``pod_loot.py`` by subject.
LOOT = {
    "account token": "reads the token of an account",
    "agent token": "reads the token of its node's agent",
    "pods": "lists pods at the API server with what it finds",
    "secrets": "lists Secrets at the API server",
    "secret": "reads a neighbour's Secret by its name",
    "admin secret": "reads the Secret of the scheduler's administrator",
    "exec": "runs a command in a neighbour",
    "ephemeral": "adds a container to a neighbour",
    "delete": "deletes a neighbour",
    "make": "makes a pod beside the scheduler's",
    "mint": "has a token of the agents' account made",
    "nodes": "lists nodes at the API server",
    "kubelet": "lists pods at the kubelets",
    "run by kubelet": "has a kubelet run a command in a neighbour",
    "admin routes": "asks the scheduler for its tokens",
    "jobs": "asks the scheduler for a neighbour",
    "output": "asks the scheduler for a neighbour's output",
    "desired": "asks the scheduler for the leases of a node",
    "report": "reports to the scheduler as a node",
    "enrol": "enrols as a node",
    "steps": "tells an agent of steps for another lease",
    "environment": "reads the environment of its neighbours",
    "password": "reads the secret variables of its neighbours",
    "files": "reads the /tmp and /dev/shm of its neighbours",
    "node's files": "reads the volumes of other pods on its node",
    "processes": "reaches processes of its neighbours",
    "node's loopback": "reaches what its node has on loopback",
    "devices": "opens devices of its node, or makes them",
    "root": "becomes root",
    "mounts": "mounts a file system",
    "limits": "raises its limit of memory",
    "powers": "holds a capability, or runs without seccomp",
}
#: Those that a server refuses, which was reached.
AT_A_DOOR = {"pods", "secrets", "secret", "admin secret", "exec", "ephemeral", "delete", "make"}
AT_A_DOOR |= {"mint", "nodes", "kubelet", "run by kubelet", "admin routes", "jobs", "output"}
AT_A_DOOR |= {"desired", "report", "enrol"}
ATTACKERS = ("node-1", "node-2")  # beside its victim, and elsewhere


@pytest.fixture(scope="module")
def scene(cluster, installed):
    scene = Scene(cluster, installed)
    scene.play()
    yield scene
    scene.close()


@pytest.mark.parametrize("attack", [pytest.param(name, id=LOOT[name]) for name in LOOT])
def test_a_job_that(scene, attack):
    for node in ATTACKERS:
        assert scene.loot[node][attack].startswith("refused: "), (node, scene.loot[node][attack])
        if attack in AT_A_DOOR:
            assert scene.loot[node][attack] in {"refused: 401", "refused: 403"}, "it was reached"
    # From a pod that may do everything the same attack gets through, so it would be seen.
    assert not scene.loot["control"][attack].startswith(("refused: ", "broken: ")), scene.loot[
        "control"
    ][attack]


def test_the_attacks_are_all_there_and_changed_nothing(scene):
    for node in (*ATTACKERS, "control"):
        assert set(LOOT) <= set(scene.loot[node])
    assert scene.before == scene.after
    assert scene.before["workers"] == {"node-1": 2, "node-2": 2}
    assert len(scene.before["processes"]) >= 2
    for node in ATTACKERS:  # the port of the agents was reached, with a secret of its own
        (answer,) = scene.loot[node]["own"]
        assert answer["notice"] is False
        assert answer["deadline_s"] > 0


def test_a_job_that_takes_the_place_of_its_leases_guard(scene):
    for node in ATTACKERS:
        assert scene.loot[node]["flood"].startswith("refused: "), scene.loot[node]["flood"]
        assert scene.loot[node]["flood where nobody listens"] == "the guard's port is free"
    for name in ("attack-1", "attack-2"):
        (pod,) = scene.installed.pods_of(scene.jobs[name])
        (guard,) = pod["status"]["initContainerStatuses"]
        assert guard["restartCount"] == 0, guard


def test_only_a_network_plugin_that_heeds_policies_keeps_pods_apart(scene):
    """It does not here, and the suite says so; the namespace is open for gangs in any case."""
    for node in ATTACKERS:
        assert scene.loot[node]["neighbour"].startswith("reached"), scene.loot[node]["neighbour"]
    found = scene.cluster.kubectl("get", "networkpolicy", "-A", "-o", "name").split()
    assert len(found) == 4, found


def test_a_job_sees_no_accelerators_but_its_leases_though_its_image_says_all(scene):
    """Its workers are of a kind that the device plugin knows nothing of."""
    for node in ATTACKERS:
        assert scene.loot[node]["variables"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert scene.loot["control"], "which has no variable of ours"
    (told,) = (e for e in scene.environment_of_prey() if e.startswith("NVIDIA_VISIBLE"))
    assert told == "NVIDIA_VISIBLE_DEVICES=GPU-node-1-0"


@pytest.mark.parametrize("name", ATTACKS)
def test_a_job_by_the_command_line_never(scene, name):
    job = {"name": name[:40].replace("_", "-"), "command": ["x"], "image": "i"} | ATTACKS[name]
    answer = scene.client("eve").post("/v1/jobs", json=job)
    assert answer.status_code == 422, answer.text
    if name == next(iter(ATTACKS)):
        done = scene.command("eve", job)
        assert done.returncode != 0
        assert "follows from its lease" in done.stderr


def test_a_secret_variable_reaches_its_job_and_no_answer_no_log_no_event_and_no_disk(scene):
    digest = hashlib.sha256(PASSWORD.encode()).hexdigest()
    assert f"sum {digest}" in scene.answers("bob")[f"/v1/jobs/{scene.jobs['prey']}/log"].text
    assert f"PASSWORD={PASSWORD}" in scene.environment_of_prey()
    for person in ("bob", "admin"):
        for path, answer in scene.answers(person).items():
            assert answer.status_code == 200, path
            assert PASSWORD not in answer.text, path
            assert scene.secret_name() not in answer.text, path
        assert '"secret_env":{"PASSWORD":"***"}' in next(iter(scene.answers(person).values())).text
    for path, answer in scene.answers("eve").items():  # of another project
        if answer.status_code == 200:
            lines = answer.json().get("events", [answer.text])
            assert not [line for line in lines if scene.jobs["prey"] in str(line)], path
    told = scene.cluster.kubectl("get", "events,pods", "-A", "-o", "json")
    assert PASSWORD not in told
    assert scene.pod["metadata"]["name"] in told
    for pod in scene.pods_of_release():
        name = pod["metadata"]["name"]
        said = scene.cluster.kubectl("logs", name, "-n", NAMESPACE)
        assert PASSWORD not in said
        assert scene.secret_name() not in said
        kept = "grep -rl --exclude-dir=proc --exclude-dir=sys correct-horse- /var/lib /tmp || true"
        if "scheduler" in name or "agent" in name:
            found = scene.cluster.kubectl(
                "exec", name, "-n", NAMESPACE, "--", "sh", "-c", f"{kept}; echo looked"
            )
            assert found.split() == ["looked"], found


def test_the_secret_of_a_pod_belongs_to_the_pod_and_holds_nothing_else(scene):
    assert decoded(scene.secret) == {"PASSWORD": PASSWORD}
    (owner,) = scene.secret["metadata"]["ownerReferences"]
    assert owner["uid"] == scene.pod["metadata"]["uid"]
    assert scene.secret["immutable"] is True
    mine = [
        s["metadata"]["name"]
        for s in scene.cluster.api(lambda api: api.get(f"/api/v1/namespaces/{JOBS}/secrets"))[
            "items"
        ]
    ]
    assert mine == [scene.secret_name()], "jobs without secret variables have none"


def test_a_job_that_names_the_secret_of_a_neighbour(scene):
    """The name is secret; but an attacker with the name gets nothing either."""
    name = scene.secret_name()
    reference = {"secretKeyRef": {"name": name, "key": "PASSWORD"}}
    taken = {"name": "job", "env": [{"name": "LOOT", "valueFrom": reference}]}
    everything = {"name": "job", "envFrom": [{"secretRef": {"name": name}}]}
    volume = {"name": "loot", "secret": {"secretName": name}}
    merged = {"name": "loot", "projected": {"sources": [{"secret": {"name": name}}]}}
    for spec in (
        {"containers": [taken]},
        {"containers": [everything]},
        {"volumes": [volume]},
        {"volumes": [merged]},
    ):
        job = {"name": "loot", "command": ["env"], "kubernetes": {"template": {"spec": spec}}}
        answer = scene.client("eve").post("/v1/jobs", json=job)
        assert answer.status_code == 422, answer.text
        assert "belongs to a job" in answer.text
    job = {"name": "loot", "command": ["env"], "kubernetes": {"image_pull_secrets": [name]}}
    assert scene.client("eve").post("/v1/jobs", json=job).status_code == 422


@pytest.fixture(scope="module")
def stolen(scene):
    """Tokens of agents, from their pods: for the scheduler, by node."""
    path = "/var/lib/leasehold/agent/agent.token"
    return {node: scene.read("agent", path, node).strip() for node in ATTACKERS}


def test_the_token_of_an_agent_opens_its_own_leases_and_gets_their_secrets_over_tls_alone(
    scene, stolen
):
    takes = {"X-Leasehold-Takes": "secrets"}
    path = "/v1/agent/desired?term=0&revision=0&wait_s=0"
    found = {}
    for node, token in stolen.items():
        with scene.installed.client(token) as thief:
            found[node] = thief.get(path, headers=takes).raise_for_status()
            bare = thief.get(path).raise_for_status()
            assert PASSWORD not in bare.text, "to an agent that would write it to its disk"
    jobs = {n: {x["job_id"] for x in a.json()["leases"]} for n, a in found.items()}
    assert scene.jobs["prey"] in jobs["node-1"]
    assert scene.jobs["sister"] in jobs["node-2"]
    assert not jobs["node-1"] & jobs["node-2"]
    assert PASSWORD in found["node-1"].text, "its own lease, by TLS"
    assert PASSWORD not in found["node-2"].text
    with httpx.Client(trust_env=False, timeout=20) as plain:
        url = str(scene.admin.base_url.copy_with(scheme="http"))
        headers = takes | {"Authorization": f"Bearer {stolen['node-1']}"}
        with pytest.raises(httpx.TransportError):
            plain.get(url.rstrip("/") + path, headers=headers)


def test_the_token_of_an_agent_opens_nothing_else(scene, stolen):
    document = scene.admin.get("/v1/openapi.json").json()
    everybodys = {"/v1/whoami", "/v1/version", "/healthz", "/readyz", "/v1/openapi.json"}
    refused = []
    with scene.installed.client(stolen["node-2"]) as thief:
        for method, path, at in others_routes(document, job=scene.jobs["prey"], node="node-1"):
            answer = thief.request(method, at)
            assert MARK not in answer.text, (method, path)
            if answer.status_code == 403:
                refused.append(path)
            elif path not in everybodys:
                assert answer.status_code in {404, 405, 415, 422}, (method, path, answer.text)
        mate = {"node": "node-1", "incarnation": 9e9, "sequence": 1, "term": 0, "revision": 0}
        report = mate | {"workers": [], "leases": []}
        assert thief.post("/v1/agent/report", json=report).status_code == 403
        lease = next(
            x["lease_id"]
            for x in scene.admin.get("/v1/leases").json()["leases"]
            if x["job_id"] == scene.jobs["prey"]
        )
        at = f"/v1/agent/logs/{lease}/out?offset=0"
        assert thief.put(at, content=b"forged").status_code == 404
    assert {"/v1/jobs", "/v1/jobs/{job_id}", "/v1/nodes", "/v1/tokens", "/v1/events"} <= set(
        refused
    )
    with scene.installed.client("lh_invented") as nobody:
        assert nobody.get("/v1/agent/desired").status_code == 401


def test_the_account_of_an_agent_reaches_its_own_nodes_pods_and_nothing_else(scene):
    """At the API server, with the token that is in the pod of node-2's agent."""
    path = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    plane = scene.cluster.plane
    thief = Api(
        url=plane.api().url,
        token=scene.read("agent", path, "node-2").strip(),
        authority=plane.authority,
    )
    prey = f"{PODS}/{scene.pod['metadata']['name']}"
    jobs, core = f"/api/v1/namespaces/{JOBS}", f"/api/v1/namespaces/{NAMESPACE}"
    note = {"metadata": {"annotations": {"x": "y"}}}
    account = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    addition = {
        "spec": {"ephemeralContainers": [{"name": "spy", "image": "leasehold.test/train:1"}]}
    }
    attacks = {
        "reads Secrets": ("GET", f"{jobs}/secrets", None),
        "reads a Secret whose name it knows": (
            "GET",
            f"{jobs}/secrets/{scene.secret_name()}",
            None,
        ),
        "reads the administrator's": ("GET", f"{core}/secrets/leasehold-admin", None),
        "reads the keys of all secrets": ("GET", f"{core}/secrets/secret-keys", None),
        "reads pods of others": ("GET", "/api/v1/pods", None),
        "reads another namespace": ("GET", f"{core}/pods", None),
        "notes on another node's pod": ("PATCH", prey, note),
        "ends another node's pod": ("DELETE", prey, {}),
        "runs commands": ("POST", f"{prey}/exec?command=env", {}),
        "adds containers": ("PATCH", f"{prey}/ephemeralcontainers", addition),
        "makes tokens": ("POST", f"{jobs}/serviceaccounts/default/token", account),
        "makes pods on another node": ("POST", PODS, pod_on("node-1")),
        "makes pods of its node's files": (
            "POST",
            PODS,
            pod_on("node-2", volumes=[{"name": "r", "hostPath": {"path": "/"}}]),
        ),
        "makes pods that the node's network is": (
            "POST",
            PODS,
            pod_on("node-2", hostNetwork=True),
        ),
        "makes pods for another account's token": (
            "POST",
            PODS,
            pod_on("node-2", automountServiceAccountToken=True),
        ),
        "writes to a node": ("PATCH", "/api/v1/nodes/node-2", {"metadata": {"labels": {"x": "y"}}}),
        "takes over addresses": (
            "POST",
            f"{jobs}/services",
            service(externalIPs=["10.96.0.1"], ports=[{"port": 443}]),
        ),
        "opens a port of the nodes": ("POST", f"{jobs}/services", service(type="NodePort")),
        "answers to a name for others": (
            "POST",
            f"{jobs}/services",
            service(type="ExternalName", externalName="evil.example"),
        ),
        "has a token put into a Secret": ("POST", f"{jobs}/secrets", secret_of_account()),
    }
    got = {}
    try:
        assert scene.pod["metadata"]["name"] in str(thief.get(PODS)), "what an agent may"
        fine = thief.ask("POST", PODS, pod_on("node-2"), dryRun="All")
        assert fine["metadata"]["name"] == "spy"
        made = thief.ask("POST", f"{jobs}/services", service(clusterIP="None"), dryRun="All")
        assert made["spec"]["clusterIP"] == "None"
        for name, (method, at, body) in attacks.items():
            try:
                got[name] = str(thief.ask(method, at, body, dryRun="All"))[:300]
            except ApiError as error:
                if error.code != 403:
                    got[name] = str(error)
    finally:
        thief.close()
    assert got == {}


def pod_on(node, **changes):
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "job", "image": "leasehold.test/train:1", "securityContext": context}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    meta = {"name": "spy", "namespace": JOBS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec | changes}


def service(**changes):
    spec = {"selector": {"x": "y"}, "ports": [{"port": 80}]} | changes
    meta = {"name": "spy", "namespace": JOBS}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def secret_of_account():
    meta = {
        "name": "spy",
        "namespace": JOBS,
        "annotations": {"kubernetes.io/service-account.name": "default"},
    }
    kind = "kubernetes.io/service-account-token"
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": kind}


def test_a_job_that_is_deaf_to_the_end_of_its_lease_leaves_nothing_behind(scene):
    """The last test but one: the attackers have processes of other sessions, deaf to SIGTERM."""
    names = ("attack-1", "attack-2")
    eventually("they stay", lambda: len(scene.pids(*names)) >= 2 * len(names), limit_s=60)
    for name in names:
        scene.installed.cancel(scene.jobs[name])
        scene.installed.await_status(scene.jobs[name], "cancelled")
    eventually("nobody is left", lambda: not scene.pids(*names), limit_s=60)


def test_the_secret_of_a_pod_goes_with_the_pod(scene):
    scene.installed.cancel(scene.jobs["prey"])
    eventually(
        "the pod is gone", lambda: not scene.installed.pods_of(scene.jobs["prey"]), limit_s=60
    )

    secrets = f"/api/v1/namespaces/{JOBS}/secrets"
    eventually(
        "its Secret is gone",
        lambda: not scene.cluster.api(lambda api: api.get(secrets))["items"],
        limit_s=90,
    )
    for path, answer in scene.answers("bob").items():
        assert PASSWORD not in answer.text, path
    takes = {"X-Leasehold-Takes": "secrets"}
    token = scene.read("agent", "/var/lib/leasehold/agent/agent.token", "node-1").strip()
    with scene.installed.client(token) as thief:
        answer = thief.get("/v1/agent/desired?term=0&revision=0&wait_s=0", headers=takes)
    assert PASSWORD not in answer.raise_for_status().text, "with the lease, and no longer"
