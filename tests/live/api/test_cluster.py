"""Nodes, policies, projects, throughputs."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def operator(daemon: Any) -> Any:
    return daemon.caller("operator", subject="olga")


def test_a_node_is_cordoned_drained_and_forgotten_with_a_reason(operator: Any) -> None:
    cordoned = operator.post("/v1/nodes/alpha/cordon", json={"reason": "fan is loud"}).json()
    assert (cordoned["state"], cordoned["reason"]) == ("cordoned", "fan is loud")
    assert operator.get("/v1/nodes/alpha").json()["state"] == "cordoned"
    assert operator.post("/v1/nodes/alpha/uncordon").json()["state"] == "ready"
    assert operator.delete("/v1/nodes/alpha").status_code == 409
    assert operator.post("/v1/nodes/alpha/drain").json()["state"] == "draining"
    gone = operator.delete("/v1/nodes/alpha")
    assert (gone.status_code, gone.content) == (204, b"")
    assert operator.get("/v1/nodes/alpha").status_code == 404
    assert operator.delete("/v1/nodes/alpha").status_code == 404
    assert operator.post("/v1/nodes/alpha/drain").status_code == 404
    assert operator.post("/v1/nodes/alpha/explode").status_code == 422
    assert operator.post("/v1/nodes/alpha/drain", json={"why": "x"}).status_code == 422
    actors = {e["actor"] for e in operator.get("/v1/events?subject_kind=node").json()["events"]}
    assert actors == {"olga"}


def test_the_cluster_is_shown_in_figures(daemon: Any, operator: Any) -> None:
    job = operator.submit()
    lease = daemon.service.run(job)
    cluster = operator.get("/v1/cluster").json()
    assert (cluster["workers"], cluster["busy"]) == ({"v100": 8}, {"v100": 1})
    assert cluster["utilisation"] == 1 / 8
    (listed,) = operator.get("/v1/leases").json()["leases"]
    assert (listed["lease_id"], listed["job_id"]) == (lease.lease_id, job)
    allocation = operator.get("/v1/allocation").json()
    assert allocation["shares"] == {job: {"v100": 1.0}}


def test_every_policy_is_listed_with_its_parameters(operator: Any) -> None:
    policies = {p["name"]: p for p in operator.get("/v1/policies").json()["policies"]}
    assert {"fifo", "max_min_fairness", "gandiva"} <= policies.keys()
    assert policies["fifo"]["parameters"][0]["name"] == "backfill"
    details = operator.get("/v1/policies/max_min_fairness").json()
    assert details["summary"] == policies["max_min_fairness"]["summary"]
    assert details["description"].startswith(details["summary"])
    assert operator.get("/v1/policies/bogus").status_code == 404


def test_the_live_policy_is_switched_with_parameters_of_any_json_type(operator: Any) -> None:
    answer = operator.put("/v1/policy", json={"name": "fifo", "parameters": {"backfill": False}})
    assert answer.status_code == 200, answer.text
    now = operator.get("/v1/policy").json()
    assert (now["name"], now["parameters"], now["actor"]) == ("fifo", {"backfill": "false"}, "olga")
    for body in (
        {"name": "bogus"},
        {"name": "fifo", "parameters": {"bogus": 1}},
        {"name": "fifo", "parameters": {"backfill": "perhaps"}},
        {"name": "fifo", "parameters": {"backfill": [1]}},
        {"name": "alpha_fairness", "parameters": {"alpha": -1.5}},
        {},
    ):
        refused = operator.put("/v1/policy", json=body)
        assert refused.status_code == 422, body
    assert "fifo" in operator.put("/v1/policy", json={"name": "fifoo"}).json()["detail"]


def test_projects_get_shares_and_quotas(operator: Any) -> None:
    body = {"weight": 2, "inner_policy": "fifo", "max_workers": 4}
    made = operator.put("/v1/projects/vision", json=body).json()
    unbounded = dict.fromkeys(("max_jobs", "entities", "job_types", "max_job_weight"))
    unbounded |= dict.fromkeys(("budget_gpu_hours", "budget_usd", "budget_warning"))
    of_types = {"max_workers_of": {"v100": 2}, "max_workers_per_user_of": {"v100": 1}}
    unset = {"max_workers_of": {}, "max_workers_per_user_of": {}, "max_workers_per_user": None}
    limits = {"project": "vision", "idle_quota": "keep"} | unbounded | unset | body
    assert made["limits"] == limits
    assert operator.get("/v1/projects").json()["projects"] == [made]
    made = operator.put("/v1/projects/vision", json=body | of_types | {"idle_quota": "lend"}).json()
    assert made["limits"] == limits | of_types | {"idle_quota": "lend"}
    # A client of an earlier release, which knows nothing of them, leaves them as they are.
    assert operator.put("/v1/projects/vision", json=body).json()["limits"] == made["limits"]
    for bad in ({"idle_quota": "borrow"}, {"max_workers_of": {"v100": -1}}):
        assert operator.put("/v1/projects/vision", json=bad).status_code == 422
    for bad in ({"weight": 0}, {"inner_policy": "lifo"}, {"max_jobs": -1}, {"max_jobs": 1.5}):
        assert operator.put("/v1/projects/vision", json=bad).status_code == 422
    assert operator.put("/v1/projects/..", json={}).status_code in {404, 405, 422}


def test_throughputs_are_declared_and_filtered(operator: Any) -> None:
    figures = [
        {"job_type": "ResNet-18 (batch size 16)", "worker_type": "v100", "steps_per_s": 12.5},
        {"job_type": "A3C", "scale_factor": 2, "worker_type": "k80", "steps_per_s": 3},
    ]
    changed = operator.put("/v1/throughputs", json={"throughputs": figures})
    assert changed.json() == {"changed": 2}
    everything = operator.get("/v1/throughputs").json()["throughputs"]
    assert [(f["job_type"], f["scale_factor"], f["steps_per_s"]) for f in everything] == [
        ("A3C", 2, 3.0),
        ("ResNet-18 (batch size 16)", 1, 12.5),
    ]
    (one,) = operator.get("/v1/throughputs?job_type=A3C").json()["throughputs"]
    assert one["source"] == "declared"
    nothing = {"throughputs": [], "pairs": []}
    assert operator.get("/v1/throughputs?worker_type=a100").json() == nothing
    for bad in (nothing, {"throughputs": [figures[0] | {"steps_per_s": -1}]}):
        assert operator.put("/v1/throughputs", json=bad).status_code == 422
    gone = operator.delete("/v1/throughputs?job_type=A3C")
    assert (gone.status_code, gone.json()) == (200, {"changed": 1})
    (left,) = operator.get("/v1/throughputs").json()["throughputs"]
    assert left["job_type"] == "ResNet-18 (batch size 16)"
    assert operator.delete("/v1/throughputs?job_type=A3C").status_code == 404
    assert operator.delete("/v1/throughputs").status_code == 422


def test_versions_health_and_figures(daemon: Any) -> None:
    viewer = daemon.caller("viewer")
    assert viewer.get("/v1/version").json() == {"version": "0.0.0", "api": "v1"}
    assert daemon.client.get("/healthz").json() == {"status": "ok"}
    assert daemon.client.get("/readyz").json()["ready"]
    metrics = viewer.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"leasehold_jobs 0" in metrics.content


def test_leases_on_a_node_are_listed_page_by_page_and_foreign_ones_left_out(daemon: Any) -> None:
    user = daemon.caller("user")
    jobs = [user.submit(project=project) for project in ("vision", "speech", "vision")]
    for job in jobs:
        daemon.service.run(job)
    path, viewer = "/v1/nodes/alpha/attempts", daemon.caller("viewer")
    page = viewer.get(f"{path}?limit=2").json()
    assert [a["job_id"] for a in page["attempts"]] == [jobs[2], jobs[1]]
    assert "token" not in page["attempts"][0]
    page = viewer.get(f"{path}?limit=2&before={page['next_before']}").json()
    assert [a["job_id"] for a in page["attempts"]] == [jobs[0]]
    assert page["next_before"] is None
    confined = daemon.caller("viewer", projects=("speech",))
    assert [a["job_id"] for a in confined.get(path).json()["attempts"]] == [jobs[1]]
    assert viewer.get("/v1/nodes/gone/attempts").json() == {"attempts": [], "next_before": None}


def test_leases_of_a_window_are_listed_page_by_page(daemon: Any) -> None:
    user, viewer = daemon.caller("user"), daemon.caller("viewer")
    began_s = daemon.clock.seconds = daemon.service.now_s
    jobs = [user.submit() for _ in range(3)]
    for job in jobs:
        daemon.service.run(job)
        daemon.service.now_s += 10.0
    daemon.service.finish(jobs[0])  # 30 s after the beginning

    def found(query: str = "") -> list[str]:
        answer = viewer.get(f"/v1/attempts{query}")
        assert answer.status_code == 200, answer.text
        return [lease["job_id"] for lease in answer.json()["attempts"]]

    assert found() == jobs[::-1]
    assert found(f"?since_s={began_s + 30}") == jobs[:0:-1]
    assert found(f"?until_s={began_s + 20}") == jobs[1::-1]
    assert found(f"?since_s={began_s + 20}&until_s={began_s + 21}") == jobs[::-1]
    assert found("?node=alpha&node=beta") == jobs[::-1]
    assert found("?node=beta") == []
    page = viewer.get("/v1/attempts?limit=2").json()
    assert [lease["job_id"] for lease in page["attempts"]] == [jobs[2], jobs[1]]
    assert "token" not in page["attempts"][0]
    last = viewer.get(f"/v1/attempts?limit=2&before={page['next_before']}").json()
    assert [lease["job_id"] for lease in last["attempts"]] == [jobs[0]]
    assert last["next_before"] is None


def test_pages_of_leases_are_full_for_a_token_confined_to_a_project(daemon: Any) -> None:
    user = daemon.caller("user")
    jobs = [user.submit(project=project) for project in ("vision", "speech", "speech", "vision")]
    for job in jobs:
        daemon.service.run(job)
    confined = daemon.caller("viewer", projects=("vision",))
    for path in ("/v1/attempts", "/v1/nodes/alpha/attempts"):
        page = confined.get(f"{path}?limit=2").json()
        assert [lease["job_id"] for lease in page["attempts"]] == [jobs[3], jobs[0]], path
        none = daemon.caller("viewer", projects=("text",)).get(path)
        assert none.json() == {"attempts": [], "next_before": None}


@pytest.mark.parametrize(
    ("query", "field", "value", "problem"),
    [
        ("since_s=20&until_s=10", "until_s", 10.0, "must be later than since_s, 20.0"),
        ("since_s=20.5&until_s=20.5", "until_s", 20.5, "must be later than since_s, 20.5"),
        ("since_s=2026-11-26T18:00", "since_s", "2026-11-26T18:00", "must be a number"),
        ("until_s=soon", "until_s", "soon", "must be a number"),
        ("until_s=nan", "until_s", "nan", "must be a finite number"),
        ("since_s=-1", "since_s", "-1", "must be at least 0.0"),
        ("limit=0", "limit", "0", "must be at least 1"),
        ("before=x", "before", "x", "must be a whole number"),
    ],
)
def test_a_wrong_window_or_page_is_refused(
    daemon: Any, query: str, field: str, value: object, problem: str
) -> None:
    answer = daemon.caller("viewer").get(f"/v1/attempts?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"] == [{"field": field, "value": value, "problem": problem}]
