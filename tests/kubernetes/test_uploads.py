"""Uploaded code in pods: real agents with the chart's rights, its policies and pod security."""

from __future__ import annotations

import sys

from installation import JOBS, ROOT, Process, eventually
from scenes import ONE_ROUND, one_node

CODE = {"guard_image": "registry.example/agent:1", "code_image": "registry.example/agent:1"}


def test_a_job_starts_in_its_code_though_the_agent_is_killed_meanwhile(live, admin):
    kubelets, made = live([one_node(start_s=2.0)], settings=ONE_ROUND, **CODE)
    digest = made.upload(word="told by the upload")
    job = made.submit("coded", steps=1, command=["sh", "-c", "cat word"], upload=digest)
    eventually("its pod is made", lambda: admin.pods(JOBS))
    made.agents["ada"].end()  # before the pod has asked for its code
    assert not kubelets.runs_of(job)
    made.start_agent("ada")
    made.await_end(job, limit_s=120)
    eventually("its output is here", lambda: "told by the upload" in made.log(job))
    assert len(kubelets.runs_of(job)) == 1, "the pod that was waiting got its code"
    eventually("no pod is left", lambda: not admin.pods(JOBS))
    path = f"/api/v1/namespaces/{JOBS}"
    left = [
        item["metadata"]["name"]
        for kind in ("secrets", "configmaps")
        for item in admin.get(f"{path}/{kind}")["items"]
    ]
    assert left in ([], ["kube-root-ca.crt"]), left


def test_an_agent_without_an_image_for_it_says_what_to_set(live):
    _, made = live([one_node()], settings=ONE_ROUND, guard_image=CODE["guard_image"])
    digest = made.upload(word="x")
    job = made.submit("coded", steps=1, command=["sh"], upload=digest, max_failures=0)
    made.await_end(job, status="failed")
    assert "kubernetes.code_image" in str(made.events(job))
    assert "agent.uploads.enabled" in str(made.events(job))


def test_one_job_starts_in_its_code_as_a_pod_here_and_as_a_process_there(live, tmp_path):
    kubelets, made = live([one_node()], settings=ONE_ROUND, **CODE)
    secret = made.client.post("/v1/enrolments", json={"node": "carl"}).json()["secret"]
    plain = Process(
        [
            sys.executable, "-m", "leasehold", "agent", "--node=carl", "--worker=bare:1",
            f"--server={made.url}", f"--state-dir={tmp_path / 'carl'}",
        ],
        tmp_path / "carl.log",
        LEASEHOLD_ENROLMENT=secret,
    )  # fmt: skip
    plain.start()
    try:
        eventually("it has joined", lambda: '"bare"' in made.client.get("/v1/nodes").text)
        digest = made.upload(word="told by the upload")
        wanted = {"throughputs": {"v100": 1.0, "bare": 1.0}, "command": ["sh", "-c", "cat word"]}
        wanted["checkpoint_dir"] = None
        jobs = [
            made.submit(
                f"coded-{kind}", steps=1, upload=digest, **wanted | {"worker_types": [kind]}
            )
            for kind in ("v100", "bare")
        ]
        either = made.submit("either", steps=1, upload=digest, **wanted)
        for job in (*jobs, either):
            made.await_end(job, limit_s=120)
            eventually("its output is here", lambda job=job: "told by" in made.log(job))
        assert len(kubelets.runs_of(jobs[0])) == 1
        assert not kubelets.runs_of(jobs[1]), "it ran beside"
        nodes = {made.attempts(job)[0]["nodes"][0] for job in jobs}
        assert nodes == {"ada", "carl"}
    finally:
        plain.end()


_STEAL = """
import os, urllib.request
from agent.bring_code import fetch

got, own = [], os.environ["LEASEHOLD_SECRET"]
for secret in (own, own[:-1], "", "x" * 32):
    try:
        got.append(fetch(os.environ["LEASEHOLD_ENDPOINT"], secret))
    except OSError as error:
        print("the agent:", error)
for lease in range(20):
    address = f"{os.environ['SERVER']}/v1/agent/code/{lease}"
    for header in ({"Authorization": f"Bearer {own}"}, {"X-Leasehold-Node": "ada"}, {}):
        try:
            got.append(urllib.request.urlopen(urllib.request.Request(address, None, header)).read())
        except urllib.error.HTTPError as error:
            if error.code not in {401, 403, 429}:
                got.append(error)
print("got", got)
"""


def test_a_job_gets_no_code_but_its_own(live):
    """Bob's pod waits for its code, beside it runs Eve's, with her secret."""
    kubelets, made = live([one_node(gpus=2)], settings=ONE_ROUND, **CODE)
    bob = made.submit(
        "bob", steps=1, command=["sh", "-c", "cat word; sleep 30"], upload=made.upload(word="bob's")
    )
    eventually("it runs", lambda: kubelets.running(bob))
    eve = made.submit(
        "eve",
        steps=1,
        command=["sh", "-c", f"{sys.executable} steal.py"],
        upload=made.upload(**{"steal.py": _STEAL}),
        env={"SERVER": made.url, "PYTHONPATH": str(ROOT)},
    )
    made.await_end(eve, limit_s=120)
    said = eventually("her output is here", lambda: (log := made.log(eve)) and "got" in log and log)
    assert "got []" in said, said
    assert "the job has begun, and has its code" in said
    assert said.count("the secret is not that of a lease") + said.count("secret") >= 3, said
