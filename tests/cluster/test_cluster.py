"""Leasehold on a real cluster of two nodes; the tests build on one another, in this order."""

from __future__ import annotations

import ipaddress
import itertools
import json
import sys
import time

from installed import JOBS, NAMESPACE
from journals import check
from machine import eventually

from agent.kubernetes.pods.pods import GUARD_WINDOW_S
from leasehold.cli.jobspec.packing import pack

ROUND_S, LONGER_S = 24, 36  # as in values.yaml, and after the upgrade
_ECHO = """
import sys
sys.stdout.buffer.write(sys.stdin.buffer.read())
sys.stderr.write("read all")
"""
_TOLD = """
import os, pathlib

def tell():
    here = pathlib.Path.cwd()
    owner = here.joinpath("main.py").stat()
    found = sorted(path.name for path in here.iterdir())
    for path in (here / "new", here / "lib" / "new"):
        path.write_text("x")
    for path in (here / "main.py", here / "lib" / "told.py"):
        path.write_text("written over")
    print(here, os.getuid(), found, f"{owner.st_uid}:{owner.st_gid}", "writes", flush=True)
"""
AGENT_IMAGE = "leasehold.test/agent:1"
V100, K80, BOTH = {"v100": 10.0}, {"k80": 10.0}, {"v100": 10.0, "k80": 10.0}


def test_the_chart_is_installed_and_its_own_test_passes(cluster, installed):
    assert _programs(cluster) == ["agent", "agent", "counter", "scheduler"]
    said = cluster.helm("test", "leasehold", "--namespace", NAMESPACE)
    assert "Succeeded" in said


def test_jobs_are_preempted_and_go_on_on_the_other_worker_type(cluster, installed):
    steps = 300
    jobs = {f"share-{n}": installed.submit(f"share-{n}", steps=steps, types=BOTH) for n in range(3)}
    for job in jobs.values():
        installed.await_status(job, "completed", limit_s=240)
    attempts = {name: check(installed.checkpoints / name, steps=steps) for name in jobs}
    assert any(len({a.worker_type for a in own}) == 2 for own in attempts.values()), attempts
    for job in jobs.values():
        assert installed.get(f"/v1/jobs/{job}")["steps_done"] == steps
        assert f"done: {steps} steps" in installed.log(job)
    devices = {"v100": "GPU-node-1-0", "k80": "GPU-node-2-0"}
    for attempt in itertools.chain(*attempts.values()):
        assert attempt.devices == devices[attempt.worker_type]


def test_a_gang_of_two_talks_over_two_nodes(cluster, installed):
    steps = 100
    job = installed.submit("gang", steps=steps, types={"mi100": 10.0}, scale_factor=2)
    installed.await_status(job, "completed", limit_s=120)
    (attempt,) = check(installed.checkpoints / "gang", steps=steps, ranks=2)
    (mate,) = attempt.mates
    address = ipaddress.ip_address(mate)
    own = [n for n in cluster.nodes.values() if address in ipaddress.ip_network(n.pods)]
    assert len(own) == 1, f"{mate} is no pod's address"


def test_a_job_outlives_the_kubelet_of_its_node(cluster, installed):
    steps = 300
    job = installed.submit("no-kubelet", steps=steps, types=K80)
    installed.await_steps("no-kubelet", 10)
    cluster.nodes["node-2"].kill_kubelet()
    eventually("node-2 is given up", lambda: not cluster.is_ready("node-2"), limit_s=40)
    done = installed.steps_in("no-kubelet")
    cluster.start_kubelet("node-2")
    cluster.await_nodes()
    installed.await_status(job, "completed", limit_s=120)
    attempts = check(installed.checkpoints / "no-kubelet", steps=steps)
    assert attempts[0].last > done, "the pod was started anew"
    assert installed.get(f"/v1/jobs/{job}")["failures"] == 0


def test_what_kubernetes_says_is_told(cluster, installed):
    typo = installed.submit("typo", steps=10, types=V100, image="leasehold.test/absent:1")
    greedy = installed.submit(
        "greedy",
        steps=10,
        types=K80,
        command=["python", "-c", "bytearray(2**30)"],
        memory_bytes=64 * 2**20,
        retry_oom=False,
        max_failures=0,
    )
    failed = installed.await_status(greedy, "failed")
    assert "memory" in json.dumps(failed), failed
    eventually(
        "the missing image is told",
        lambda: "ImagePull" in json.dumps(installed.get(f"/v1/jobs/{typo}/explain")),
        limit_s=40,
    )
    installed.cancel(typo)
    eventually("its pod goes", lambda: not cluster.pods(JOBS), limit_s=60)


def test_a_worker_that_somebody_elses_pod_holds_is_left_alone(cluster, installed):
    container = {
        "name": "notebook",
        "image": "leasehold.test/train:1",
        "command": ["python", "-c", "import time; time.sleep(1000)"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    spec = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "notebook"}, "spec": spec}
    cluster.apply(pod)
    try:
        eventually(
            "the scheduler knows whose it is",
            lambda: "default/notebook" in json.dumps(installed.get("/v1/nodes")),
            limit_s=40,
        )
        job = installed.submit("patient", steps=20, types=V100)
        eventually(
            "the job is told to wait", lambda: installed.get(f"/v1/jobs/{job}/explain"), limit_s=20
        )
        assert not installed.pods_of(job)
    finally:
        cluster.kubectl("delete", "pod", "notebook", "--grace-period=1")
    installed.await_status(job, "completed")
    check(installed.checkpoints / "patient", steps=20)


def test_a_job_leaves_a_node_that_is_drained(cluster, installed):
    steps = 250
    job = installed.submit("moved", steps=steps, types=BOTH)
    installed.await_steps("moved", 30)
    (pod,) = installed.pods_of(job)
    node = pod["spec"]["nodeName"]
    labels = f"leasehold.dev/job={pod['metadata']['labels']['leasehold.dev/job']}"
    cluster.kubectl("drain", node, f"--pod-selector={labels}", "--delete-emptydir-data", "--force")
    try:
        installed.await_status(job, "completed", limit_s=120)
    finally:
        cluster.kubectl("uncordon", node)
    attempts = check(installed.checkpoints / "moved", steps=steps)
    assert len({attempt.worker_type for attempt in attempts}) == 2, attempts
    assert installed.get(f"/v1/jobs/{job}")["failures"] == 0


def test_without_agents_the_guards_end_jobs_when_their_leases_are_over(cluster, installed):
    """What only a real kubelet shows: docs/adr/0006."""
    steps = 600
    job = installed.submit("guarded", steps=steps, types=V100)
    installed.await_steps("guarded", 30)
    agents = ("daemonset/leasehold-agent-gpu", "-n", NAMESPACE, "--type=merge", "-p")
    cluster.kubectl("patch", *agents, _selector("nowhere"))
    eventually("the agents are gone", lambda: "agent" not in _programs(cluster), limit_s=60)
    (pod,) = installed.pods_of(job)
    assert pod["status"]["phase"] == "Running", "it runs for as long as its lease holds"
    eventually(
        "the guard ends it",
        lambda: installed.pods_of(job)[0]["status"]["phase"] in {"Failed", "Succeeded"},
        limit_s=ROUND_S + GUARD_WINDOW_S + 15,
    )
    assert installed.steps_in("guarded") < steps
    cluster.kubectl("patch", *agents, _selector("true"))
    installed.await_workers()
    installed.await_status(job, "completed", limit_s=150)
    check(installed.checkpoints / "guarded", steps=steps, lost=30)
    assert installed.get(f"/v1/jobs/{job}")["failures"] == 0


def _programs(cluster):
    return sorted(pod["spec"]["containers"][0]["name"] for pod in cluster.pods(NAMESPACE))


def _selector(value):
    template = {"spec": {"nodeSelector": {"nvidia.com/gpu.present": value}}}
    return json.dumps({"spec": {"template": template}})


def test_an_upgrade_replaces_scheduler_and_agents_under_running_jobs(cluster, installed):
    steps = 500
    jobs = {
        "upgraded-1": installed.submit("upgraded-1", steps=steps, types=V100),
        "upgraded-2": installed.submit("upgraded-2", steps=steps, types=K80),
    }
    for name in jobs:
        installed.await_steps(name, 10)
    before = {p["metadata"]["uid"] for p in cluster.pods(NAMESPACE)}
    longer = f"scheduler.config.engine.round_length_s={LONGER_S}"
    installed.helm("upgrade", "--set", f"agent.logLevel=debug,{longer}")
    assert not before & {p["metadata"]["uid"] for p in cluster.pods(NAMESPACE)}
    assert all(installed.steps_in(name) < steps for name in jobs), "they run"
    for name, job in jobs.items():
        installed.await_status(job, "completed", limit_s=120)
        check(installed.checkpoints / name, steps=steps)
        assert installed.get(f"/v1/jobs/{job}")["failures"] == 0


def test_a_job_goes_on_while_the_schedulers_pod_is_replaced_in_mid_round(cluster, installed):
    steps = 600
    job = installed.submit("through", steps=steps, types=V100)
    # Just extended: no agent would have needed the scheduler for a while.
    eventually(
        "its lease is extended",
        lambda: installed.deadline_s(job) - time.time() > LONGER_S + 5,
        limit_s=LONGER_S + 20,
    )
    (pod,) = (p for p in cluster.pods(NAMESPACE) if "scheduler" in p["metadata"]["name"])
    name = pod["metadata"]["name"]
    cluster.kubectl("delete", "pod", name, "-n", NAMESPACE, "--grace-period=1")
    began_s, done = time.monotonic(), installed.steps_in("through")
    installed.await_workers()
    print(f"the scheduler was away for {time.monotonic() - began_s:.1f} s", file=sys.stderr)
    assert done < installed.steps_in("through") < steps, "it went on meanwhile"
    installed.await_status(job, "completed", limit_s=120)
    attempts = check(installed.checkpoints / "through", steps=steps)
    assert len(attempts) == 1, "it was stopped, though its lease held"


def test_commands_run_in_pods_where_an_operator_allows_it(cluster, installed):
    job = installed.submit("entered", steps=2000, types=V100)
    installed.await_steps("entered", 5)

    def refused():
        told = installed.run_beside(job, "true")
        return told if "does not run on this node now" not in told.problem else None

    told = eventually("its agent has seen that it runs", refused, limit_s=30)
    assert told.code is None
    assert "agent.exec=true" in told.problem
    longer = f"scheduler.config.engine.round_length_s={LONGER_S}"
    installed.helm("upgrade", "--set", f"agent.logLevel=debug,{longer},agent.exec=true")
    script = "import os; print(os.environ['LEASEHOLD_JOB_ID'], os.getuid()); raise SystemExit(3)"
    told = installed.run_beside(job, "python", "-c", script)
    assert (told.code, told.problem) == (3, "")
    named, uid = told.out.decode().split()
    assert named == job
    assert uid != "0"
    data = bytes(range(256)) * 1000
    told = installed.run_beside(job, "python", "-c", _ECHO, stdin=data)
    assert (told.code, told.out, told.err) == (0, data, b"read all")
    absent = installed.run_beside(job, "no-such-program")
    assert absent.code == 127, absent
    assert b"no-such-program" in absent.err
    installed.cancel(job)
    events = installed.get(f"/v1/events?kind=job_exec&subject={job}")["events"]
    assert len(events) >= 4, events


def test_a_gang_starts_in_uploaded_code_on_either_node(cluster, installed, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "told.py").write_text(_TOLD)
    (tmp_path / "main.py").write_text("from lib.told import tell\ntell()\n")
    archive = pack(tmp_path)
    digest = installed.upload(archive)
    known = {"env": {"STEP_S": "0"}, "upload": digest, "image": "leasehold.test/train:1"}
    job = installed.submit(
        "uploaded", steps=1, types={"mi100": 10.0}, scale_factor=2, command=["python", "main.py"],
        **known,
    )  # fmt: skip
    pods = eventually("both pods are there", lambda: _both(installed.pods_of(job)), limit_s=60)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1", "node-2"}
    assert all(_bringers(pod) == [AGENT_IMAGE] for pod in pods)
    installed.await_status(job, "completed", limit_s=120)
    said = "/leasehold/code 1000 ['lib', 'main.py'] 1000:1000 writes\n"
    log = installed.log(job)
    assert log.count(said) == 2, log
    # It was no luck of the image.
    plain = installed.submit(
        "plain", steps=1, types=V100, command=["python", "main.py"], max_failures=0
    )
    installed.await_status(plain, "failed", limit_s=90)
    eventually("the pods go", lambda: not cluster.pods(JOBS), limit_s=60)
    secrets = cluster.kubectl("get", "secret,configmap", "-n", JOBS, "-o", "name").split()
    assert not [name for name in secrets if "uploaded" in name]


def _both(pods):
    return pods if len(pods) == 2 and all(p["spec"].get("nodeName") for p in pods) else None


def _bringers(pod):
    return [c["image"] for c in pod["spec"]["initContainers"] if c["name"] == "leasehold-code"]


def test_nothing_has_broken_underneath(cluster, installed):
    names = [pod["metadata"]["name"] for pod in cluster.pods(NAMESPACE)]
    for name in names:
        said = cluster.kubectl("logs", name, "-n", NAMESPACE)
        assert "Traceback" not in said, f"{name}: {said[-5000:]}"
        assert " ERROR " not in said, f"{name}: {said[-5000:]}"
        assert '"level": "error"' not in said, f"{name}: {said[-5000:]}"
    for node in cluster.nodes.values():
        node.programs.check()
    cluster.plane.programs.check()


def test_what_is_uninstalled_is_gone_and_what_cannot_be_made_again_stays(cluster, installed):
    installed.uninstall()
    kept = cluster.kubectl("get", "pvc,secret", "-n", NAMESPACE, "-o", "name").split()
    assert {"persistentvolumeclaim/leasehold-state", "secret/leasehold-admin"} <= set(kept)
    cluster.kubectl("get", "namespace", JOBS)
