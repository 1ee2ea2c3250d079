"""Uploaded code in pods: real agents with the chart's rights, its policies and pod security."""

from __future__ import annotations

from installation import JOBS, eventually
from scenes import ONE_ROUND, one_node

CODE = {"guard_image": "registry.example/agent:1", "code_image": "registry.example/agent:1"}


def test_a_job_starts_in_its_code_though_the_agent_is_killed_meanwhile(live, admin):
    kubelets, made = live([one_node(start_s=2.0)], settings=ONE_ROUND, **CODE)
    digest = made.upload(word="told by the upload")
    job = made.submit("coded", steps=1, command=["show", "word"], upload=digest)
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
    job = made.submit("coded", steps=1, command=["show", "word"], upload=digest, max_failures=0)
    made.await_end(job, status="failed")
    assert "kubernetes.code_image" in str(made.events(job))
    assert "agent.uploads.enabled" in str(made.events(job))
