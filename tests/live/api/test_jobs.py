"""Reading jobs and acting on them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scheduler.domain.rows import HistoryRow


@pytest.fixture
def user(daemon: Any) -> Any:
    return daemon.caller("user", subject="ann")


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [job["job_id"] for job in answer.json()["jobs"]]


def test_pages_join_to_the_whole_list_without_gap_or_repetition(user: Any) -> None:
    made = [user.submit(name=f"j{i % 3}", weight=1 + i % 4) for i in range(23)]
    for sort in ("submitted", "-submitted", "name", "-weight", "updated"):
        seen: list[str] = []
        cursor = None
        while True:
            params = {"sort": sort, "limit": 5} | ({"cursor": cursor} if cursor else {})
            page = user.get("/v1/jobs", params=params).json()
            assert len(page["jobs"]) <= 5
            seen += [job["job_id"] for job in page["jobs"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert sorted(seen) == sorted(made), sort
        if sort == "submitted":
            assert seen == made


def test_a_list_is_filtered_by_everything_at_once(daemon: Any, user: Any) -> None:
    first = user.submit(project="vision", job_type="a", labels={"team": "x", "run": "1"})
    second = user.submit(project="speech", job_type="b", labels={"team": "x"})
    third = daemon.caller("user", subject="bob").submit(project="vision", job_type="b")
    daemon.service.run(third)
    daemon.service.finish(first)
    assert ids(user.get("/v1/jobs?sort=submitted")) == [first, second, third]
    assert ids(user.get("/v1/jobs?project=vision")) == [third, first]
    assert ids(user.get("/v1/jobs?project=vision&project=speech&job_type=b")) == [third, second]
    assert ids(user.get("/v1/jobs?status=running&status=completed")) == [third, first]
    assert ids(user.get("/v1/jobs?owner=bob")) == [third]
    assert ids(user.get("/v1/jobs?label=team=x")) == [second, first]
    assert ids(user.get("/v1/jobs?label=team=x&label=run=1")) == [first]
    assert ids(user.get("/v1/jobs?sort=-finished")) == [first], "only jobs that have ended"
    assert ids(user.get("/v1/jobs?sort=deadline")) == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("status=bogus", "status.0"),
        ("sort=size", "sort"),
        ("label=nosign", "label.0"),
        ("label=" + "k" * 500 + "=v", "label.0"),
        ("owner=%00", "owner"),
        ("label=a=%00", "label"),
        ("owner=%0a", "owner"),
        ("bogus=1", "bogus"),
    ],
)
def test_a_bad_parameter_is_refused_and_named(user: Any, query: str, field: str) -> None:
    answer = user.get(f"/v1/jobs?{query}")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_damaged_cursor_is_refused(user: Any) -> None:
    for cursor in ("bogus", "eyJhIjoxfQ==", "%ff", "a" * 1999):
        answer = user.get(f"/v1/jobs?cursor={cursor}")
        assert answer.status_code == 422, cursor
        assert "cursor" in answer.json()["detail"]


def test_what_is_known_now_is_put_over_the_stored_row(daemon: Any, user: Any) -> None:
    waiting, running = user.submit(), user.submit(scale_factor=2)
    lease = daemon.service.run(running)
    (second, first) = user.get("/v1/jobs").json()["jobs"]
    assert (first["job_id"], first["status"], first["reason"]) == (waiting, "waiting", "turn")
    assert (first["lease_id"], first["workers"]) == (None, 0)
    assert (second["status"], second["reason"], second["worker_type"]) == ("running", "", "v100")
    assert (second["lease_id"], second["workers"]) == (lease.lease_id, 2)
    assert (second["nodes"], second["allocation"]) == (["alpha"], {"v100": 1.0})
    one = user.get(f"/v1/jobs/{running}").json()
    assert one.pop("spec")["command"] == ["python"]
    assert one == second
    daemon.service.leading = False
    assert user.get("/v1/jobs").json()["jobs"][1]["reason"] == "", "a standby knows rows only"


def test_leases_history_and_explanation_of_a_job(daemon: Any, user: Any) -> None:
    job = user.submit()
    told = user.get(f"/v1/jobs/{job}/explain").json()
    assert (told["reason"], told["position"]) == ("turn", 1)
    assert told["starts_s"] == daemon.clock() + 60
    assert user.get(f"/v1/jobs/{job}/explain?forecast=false").json()["starts_s"] is None
    daemon.service.run(job)
    (attempt,) = user.get(f"/v1/jobs/{job}/attempts").json()["attempts"]
    assert (attempt["attempt"], attempt["nodes"]) == (1, ["alpha"])
    assert "token" not in attempt
    assert attempt["launches"] == []
    user.submit()
    page = user.get(f"/v1/jobs/{job}/events").json()
    assert [event["kind"] for event in page["events"]] == ["job_submitted", "lease_granted"]
    assert page["events"][0]["actor"] == "ann"
    rest = user.get(f"/v1/jobs/{job}/events?after={page['events'][0]['event_id']}").json()
    assert [event["kind"] for event in rest["events"]] == ["lease_granted"]
    none = user.get(f"/v1/jobs/{job}/events?after=99").json()
    assert none == {"events": [], "last_event_id": 99}


def test_a_lease_tells_how_its_pods_were_launched(daemon: Any, user: Any) -> None:
    job = user.submit()
    lease = daemon.service.run(job)
    lines = [
        {"lease": lease.lease_id, "node": "alpha", "launch_s": 4.0, "devices": ["GPU-a"]},
        {"lease": lease.lease_id + 1, "node": "beta", "launch_s": 5.0},
    ]
    for data in lines:
        row = HistoryRow(
            at_s=daemon.clock(), kind="lease_launched", subject_kind="job", subject=job, data=data
        )
        daemon.service.store.append_history((row,))
    (attempt,) = user.get(f"/v1/jobs/{job}/attempts").json()["attempts"]
    told = {"image_s": None, "launch_s": 4.0, "ready_s": None, "devices": ["GPU-a"]}
    assert attempt["launches"] == [{"node": "alpha", **told}]


def test_an_attempt_that_goes_on_tells_the_steps_that_its_job_tells(daemon: Any, user: Any) -> None:
    job = user.submit()
    lease = daemon.service.run(job)
    daemon.service._leases[job] = dataclasses.replace(lease, steps_done=130.0)
    (attempt,) = user.get(f"/v1/jobs/{job}/attempts").json()["attempts"]
    assert attempt["steps_done"] == user.get(f"/v1/jobs/{job}").json()["steps_done"] == 130.0


def test_an_action_changes_a_job_once_and_conflicts_are_told(daemon: Any, user: Any) -> None:
    job = user.submit()
    assert user.post(f"/v1/jobs/{job}/hold").json()["changed"]
    assert not user.post(f"/v1/jobs/{job}/hold").json()["changed"]
    assert user.post(f"/v1/jobs/{job}/release").json()["changed"]
    assert user.post(f"/v1/jobs/{job}/cancel").json()["changed"]
    late = user.post(f"/v1/jobs/{job}/hold")
    assert (late.status_code, late.json()["detail"]) == (409, f"job '{job}' has ended")
    assert user.post(f"/v1/jobs/{job}/requeue").json()["changed"]
    assert user.post(f"/v1/jobs/{job}/explode").status_code == 422
    events = user.get(f"/v1/jobs/{job}/events").json()["events"]
    assert {event["actor"] for event in events} == {"ann"}


def test_weight_and_deadline_are_changed_and_a_deadline_taken_away(user: Any) -> None:
    job = user.submit(deadline_s=2e6)
    assert user.patch(f"/v1/jobs/{job}", json={"weight": 3}).json()["changed"]
    found = user.get(f"/v1/jobs/{job}").json()
    assert (found["weight"], found["deadline_s"]) == (3.0, 2e6)
    user.patch(f"/v1/jobs/{job}", json={"deadline_s": 3e6})
    assert user.get(f"/v1/jobs/{job}").json()["deadline_s"] == 3e6
    late = user.patch(f"/v1/jobs/{job}", json={"deadline_s": 100.5})
    assert late.status_code == 422
    assert "deadline_s is 1970-01-01T00:01:40+00:00, which has passed" in late.text
    user.patch(f"/v1/jobs/{job}", json={"deadline_s": None})
    assert user.get(f"/v1/jobs/{job}").json()["deadline_s"] is None
    for nothing in ({}, {"weight": None}):
        assert user.patch(f"/v1/jobs/{job}", json=nothing).status_code == 422
    user.post(f"/v1/jobs/{job}/cancel")
    assert user.patch(f"/v1/jobs/{job}", json={"weight": 3}).status_code == 409


def test_a_selector_means_every_job_that_it_fits(daemon: Any, user: Any) -> None:
    job = {"name": "train", "command": ["a"], "project": "vision", "labels": {"sweep": "7"}}
    mine = []
    for _ in range(2):
        answer = user.post("/v1/jobs", json={"jobs": [job] * 600}).json()
        mine += [item["job_id"] for item in answer["jobs"]]
    other = user.submit(project="speech")
    daemon.service.finish(mine[0])
    body = {"action": "hold", "selector": {"project": ["vision"], "labels": {"sweep": "7"}}}
    answer = user.post("/v1/jobs:act", json=body).json()
    assert (answer["matched"], answer["changed"], answer["failed"]) == (1199, 1199, 0)
    assert not answer["truncated"]
    assert [item["job_id"] for item in answer["jobs"]] == mine[1:], "oldest first"
    assert user.get(f"/v1/jobs/{other}").json()["status"] == "waiting"
    ended = {"action": "requeue", "selector": {"status": ["completed"], "owner": "ann"}}
    assert user.post("/v1/jobs:act", json=ended).json()["changed"] == 1


def test_a_selector_acts_on_no_more_than_the_maximum(serve: Any) -> None:
    user = serve(max_selected=3).caller("user")
    made = [user.submit(project="vision") for _ in range(5)]
    body = {"action": "cancel", "selector": {"project": ["vision"]}}
    first = user.post("/v1/jobs:act", json=body).json()
    assert (first["matched"], first["truncated"]) == (3, True)
    second = user.post("/v1/jobs:act", json=body).json()
    assert [item["job_id"] for item in second["jobs"]] == made[3:]
    assert not second["truncated"]


def test_jobs_by_id_are_answered_one_by_one(user: Any) -> None:
    job, ended = user.submit(), user.submit()
    user.post(f"/v1/jobs/{ended}/cancel")
    body = {"ids": [job, "unknown", ended, job], "weight": 5}
    answer = user.patch("/v1/jobs", json=body).json()
    assert [(i["job_id"], i["changed"], i["code"]) for i in answer["jobs"]] == [
        (job, True, ""),
        ("unknown", False, "not_found"),
        (ended, False, "conflict"),
    ]
    assert (answer["matched"], answer["changed"], answer["failed"]) == (3, 1, 2)
    assert user.get(f"/v1/jobs/{job}").json()["weight"] == 5


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel"},
        {"action": "cancel", "selector": {}},
        {"action": "cancel", "ids": []},
        {"action": "cancel", "ids": ["a"], "selector": {"owner": "ann"}},
        {"action": "cancel", "ids": ["a"] * 1001},
        {"action": "explode", "ids": ["a"]},
        {"ids": ["a"]},
        {"action": "cancel", "selector": {"status": ["bogus"]}},
    ],
)
def test_an_unclear_bulk_action_is_refused(user: Any, body: dict[str, Any]) -> None:
    assert user.post("/v1/jobs:act", json=body).status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/..%2f..%2fetc%2fpasswd",
        "/v1/jobs/%2e%2e",
        "/v1/jobs/a%00b",
        "/v1/jobs/%0a",
        "/v1/jobs/" + "x" * 500,
        "/v1/jobs/..%2fx/log",
        "/v1/nodes/..%2f..%2fetc",
        "/v1/policies/..%2fbase",
        "/static/../../etc/passwd",
        "//etc/passwd",
    ],
)
def test_paths_that_leave_their_place_lead_nowhere(user: Any, path: str) -> None:
    answer = user.get(path)
    assert answer.status_code in {404, 422}
    assert answer.headers["content-type"] == "application/problem+json"
