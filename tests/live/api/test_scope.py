"""A token that is confined to projects: other projects' jobs do not exist for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from api.jobs import selection
from scheduler.domain.facts.causes import Cause, FactKind, Ground

JOB: dict[str, Any] = {"name": "train", "command": ["python"]}


@pytest.fixture
def foreign(daemon: Any) -> str:
    """A running job of project speech."""
    job = daemon.caller("user", subject="bob").submit(project="speech", labels={"a": "b"})
    daemon.service.run(job)
    return str(job)


@pytest.fixture
def ann(daemon: Any) -> Any:
    return daemon.caller("operator", subject="ann", projects=("vision", "language"))


#: Id of a command beside a job.
EXEC = "0" * 32


def routes_that_name_a_job() -> list[tuple[str, str, object]]:
    reads = ["", "/attempts", "/events", "/explain", "/log", "/log?follow=true"]
    actions = ["cancel", "hold", "release", "requeue"]
    return [
        *[("GET", f"/v1/jobs/{{}}{path}", None) for path in reads],
        *[("POST", f"/v1/jobs/{{}}/{action}", None) for action in actions],
        ("POST", "/v1/jobs/{}/exec", {"command": ["ls"]}),
        ("GET", f"/v1/jobs/{{}}/exec/{EXEC}", None),
        ("DELETE", f"/v1/jobs/{{}}/exec/{EXEC}", None),
        ("PATCH", "/v1/jobs/{}", {"weight": 2}),
    ]


def test_every_route_that_names_a_job_is_in_the_list(daemon: Any) -> None:
    named = {
        (method.upper(), path)
        for path, methods in daemon.app.openapi()["paths"].items()
        for method in methods
        if "{job_id}" in path
    }
    listed = set()
    for method, path, _ in routes_that_name_a_job():
        known = path.partition("?")[0].replace("{}", "{job_id}").replace(EXEC, "{exec_id}")
        acts = method == "POST" and not known.endswith("/exec")
        listed.add((method, "/v1/jobs/{job_id}/{action}" if acts else known))
    assert named == listed


@pytest.mark.parametrize("route", routes_that_name_a_job())
def test_a_job_of_a_foreign_project_cannot_be_told_from_one_that_never_was(
    daemon: Any, ann: Any, foreign: str, route: tuple[str, str, object]
) -> None:
    method, path, body = route
    before = daemon.service.store.job(foreign)
    there = ann.request(method, path.format(foreign), json=body)
    never = ann.request(method, path.format("job-99"), json=body)
    assert there.status_code == never.status_code == 404
    assert there.json()["detail"].replace(foreign, "job-99") == never.json()["detail"]
    assert daemon.service.store.job(foreign) == before


def test_in_bulk_foreign_jobs_are_unknown_by_id_and_never_selected(
    daemon: Any, ann: Any, foreign: str
) -> None:
    own = ann.submit(project="vision", labels={"a": "b"})
    by_id = ann.post("/v1/jobs:act", json={"action": "hold", "ids": [foreign, own, "never"]})
    codes = {item["job_id"]: item["code"] for item in by_id.json()["jobs"]}
    assert codes == {own: "", foreign: "not_found", "never": "not_found"}
    for selector in ({"labels": {"a": "b"}}, {"owner": "bob"}, {"project": ["speech"]}):
        body = {"action": "cancel", "selector": selector}
        found = {item["job_id"] for item in ann.post("/v1/jobs:act", json=body).json()["jobs"]}
        assert found <= {own}, selector
        ann.patch("/v1/jobs", json={"weight": 9, "selector": selector})
    row = daemon.service.store.job(foreign)
    assert (row.status, row.weight) == ("running", 1.0)


def test_lists_leave_foreign_jobs_out(ann: Any, foreign: str) -> None:
    own = ann.submit(project="vision")
    for query in ("", "?project=speech", "?project=speech&project=vision", "?owner=bob"):
        found = {job["job_id"] for job in ann.get(f"/v1/jobs{query}").json()["jobs"]}
        assert foreign not in found
    assert ann.get("/v1/jobs?project=speech").json() == {"jobs": [], "next_cursor": None}
    assert [j["job_id"] for j in ann.get("/v1/jobs").json()["jobs"]] == [own]


def test_an_explanation_names_no_foreign_job_that_is_ahead(daemon: Any, ann: Any) -> None:
    foreign = daemon.caller("user", subject="bob").submit(project="speech")
    first, second = ann.submit(project="vision"), ann.submit(project="vision")
    path = f"/v1/jobs/{second}/explain"
    answer = ann.get(path)
    assert f'"{foreign}"' not in answer.text
    assert "speech" not in answer.text
    assert (answer.json()["position"], answer.json()["ahead"]) == (
        3,
        [
            {"job_id": "", "project": "", "is_planned": False, "lag_s": 90.0},
            {"job_id": first, "project": "vision", "is_planned": False, "lag_s": 90.0},
        ],
    )
    everything = daemon.caller("viewer").get(path).json()["ahead"]
    assert [(one["job_id"], one["project"]) for one in everything] == [
        (foreign, "speech"),
        (first, "vision"),
    ]


def test_what_is_read_of_the_cluster_names_no_foreign_job(
    daemon: Any, ann: Any, foreign: str
) -> None:
    own = ann.submit(project="vision")
    daemon.service.run(own)
    named = ("/v1/nodes", "/v1/nodes/alpha", "/v1/leases", "/v1/plan", "/v1/allocation")
    for path in (*named, "/v1/cluster"):
        text = ann.get(path).text
        assert f'"{foreign}"' not in text, path
        if path != "/v1/cluster":
            assert f'"{own}"' in text, path
    everything = daemon.caller("viewer")
    for path in ("/v1/nodes", "/v1/leases", "/v1/plan", "/v1/allocation"):
        assert f'"{foreign}"' in everything.get(path).text


def test_history_of_foreign_jobs_and_projects_is_left_out(
    daemon: Any, ann: Any, foreign: str
) -> None:
    own = ann.submit(project="vision")
    admin = daemon.caller("admin")
    admin.put("/v1/projects/speech", json={"max_jobs": 1})
    admin.put("/v1/projects/vision", json={"max_jobs": 1})
    admin.post("/v1/tokens", json={"subject": "eve", "role": "viewer"})
    jobs = {"jobs": [foreign, own], "job_id": foreign, "job": own, "cause": "dust"}
    note = daemon.service.note
    daemon.run(note("node_lost", "node", "alpha", actor="", data=jobs))
    events = ann.get("/v1/events").json()["events"]
    assert [(e["kind"], e["subject"]) for e in events] == [
        ("job_submitted", own),
        ("project_changed", "vision"),
        ("node_lost", "alpha"),
    ]
    assert events[-1]["data"] == {"jobs": [own], "job": own, "cause": "dust"}
    assert ann.get(f"/v1/events?subject={foreign}").json()["events"] == []
    assert ann.get("/v1/events?project=speech").json()["events"] == []
    of_project = admin.get("/v1/events?project=speech").json()["events"]
    assert [e["subject"] for e in of_project] == [foreign, foreign, "speech", "alpha"]
    kinds = {e["kind"] for e in admin.get("/v1/events").json()["events"]}
    assert "token_created" in kinds
    assert "token_created" not in daemon.caller("operator").get("/v1/events").text


def test_what_is_said_of_a_node_names_no_foreign_job(daemon: Any, ann: Any, foreign: str) -> None:
    own = ann.submit(project="vision")
    fault = {"at_s": 1.0, "kind": "failed", "message": "secret words of its output"}
    told: dict[str, Any] = {
        "agent_died": {"suspects": [foreign, own]},
        "node_quarantined": {"evidence": [fault | {"job": foreign}, fault | {"job": own}]},
        "node_suspected": {"evidence": [fault | {"job": foreign}]},
    }
    for kind, data in told.items():
        daemon.run(daemon.service.note(kind, "node", "alpha", actor="", data=data))
    page = ann.get("/v1/events?" + "&".join(f"kind={kind}" for kind in told))
    assert foreign not in page.text
    assert [event["data"] for event in page.json()["events"]] == [
        {"suspects": [own]},
        {"evidence": [fault | {"job": own}]},
        {"evidence": []},
    ]
    words = "quarantined by the scheduler: 1 jobs failed here"
    body = {"reason": f"{words} ({foreign}); the last: secret words of its output"}
    assert daemon.caller("admin").post("/v1/nodes/alpha/cordon", json=body).is_success
    assert ann.get("/v1/nodes/alpha").json()["reason"] == words
    assert daemon.caller("viewer").get("/v1/nodes/alpha").json()["reason"] == body["reason"]
    everything = daemon.caller("viewer").get("/v1/events?kind=agent_died").json()["events"]
    assert everything[-1]["data"] == told["agent_died"]


def test_causes_name_no_foreign_job_and_no_foreign_entity(
    daemon: Any, ann: Any, foreign: str
) -> None:
    own = ann.submit(project="vision")
    rival: dict[str, Any] = {"ground": Ground.BEHIND, "rival": foreign, "rival_project": "speech"}
    causes = [
        Cause(
            fact=FactKind.JOB_ARRIVED, subject=foreign, project="speech", round_number=3, **rival
        ),
        Cause(fact=FactKind.WEIGHT_CHANGED, subject=own, project="vision", **rival),
        Cause(fact=FactKind.JOB_ENDED, subject=own, **rival),  # without a known project any more
        Cause(fact=FactKind.JOB_ENDED, subject=foreign),
        Cause(fact=FactKind.SHARE_CHANGED, subject="speech"),
    ]
    for cause in causes:
        data = {"cause": cause.to_data()}
        daemon.run(daemon.service.note("job_preempted", "job", own, actor="", data=data))
    path = f"/v1/events?subject={own}&kind=job_preempted"
    page = ann.get(path)
    assert foreign not in page.text
    assert "speech" not in page.text
    told = [event["cause"] for event in page.json()["events"]]
    assert [cause["text"] for cause in told] == [
        "in round 3: another job arrived; others are further behind",
        "it has another weight; others are further behind",
        "it ended; others are further behind",
        "another job ended",
        "",
    ]
    assert all(cause["rival"] == "" for cause in told)
    seen = daemon.caller("viewer").get(path).json()["events"]
    assert seen[0]["cause"]["text"] == (
        f"in round 3: speech/{foreign} arrived and is further behind"
    )
    assert seen[1]["cause"]["rival"] == foreign


def test_a_page_of_little_visible_history_goes_on_where_it_ended(
    daemon: Any, ann: Any, foreign: str
) -> None:
    own = [ann.submit(project="vision") for _ in range(3)]
    for _ in range(30):
        daemon.caller("operator").post(f"/v1/jobs/{foreign}/hold")
        daemon.caller("operator").post(f"/v1/jobs/{foreign}/release")
    own += [ann.submit(project="vision") for _ in range(3)]
    after, seen = 0, []
    while True:
        page = ann.get(f"/v1/events?after={after}&limit=2").json()
        seen += [e["subject"] for e in page["events"]]
        if page["last_event_id"] == after:
            break
        after = page["last_event_id"]
    assert seen == own
    newest = ann.get("/v1/events?descending=true&limit=4").json()
    assert [e["subject"] for e in newest["events"]] == own[:1:-1]
    older = ann.get(f"/v1/events?descending=true&before={newest['last_event_id']}").json()
    assert [e["subject"] for e in older["events"]] == own[1::-1]


@pytest.mark.parametrize("way", ["", "&descending=true", "&after=1", "&descending=true&before=9"])
def test_a_page_ends_where_it_would_end_if_nothing_foreign_were_there(
    daemon: Any, ann: Any, foreign: str, way: str
) -> None:
    admin = daemon.caller("admin", subject="root")
    admin.post(f"/v1/jobs/{foreign}/hold")
    token = admin.post("/v1/tokens", json={"subject": "eve", "role": "viewer"}).json()["token_id"]
    hook = {"name": "hook", "url": "https://1.1.1.1/x", "on": ["job_failed"], "project": "speech"}
    assert admin.post("/v1/webhooks", json=hook).status_code == 201
    admin.put("/v1/projects/speech", json={"weight": 2.0})
    for there, not_there in (
        (f"subject={foreign}", "subject=job-999"),
        (f"subject_kind=job&subject={foreign}", "subject_kind=job&subject=job-999"),
        (f"subject_kind=token&subject={token}", "subject_kind=token&subject=t-000000000000"),
        ("subject_kind=webhook&subject=speech/hook", "subject_kind=webhook&subject=none"),
        ("subject=speech", "subject=none"),
        ("actor=bob", "actor=nobody"),
        ("kind=job_held", "kind=job_failed"),
    ):
        for asker in (ann, daemon.caller("viewer", projects=("language",))):
            told = [asker.get(f"/v1/events?{words}{way}").json() for words in (there, not_there)]
            assert told[0] == told[1], (there, told)
            assert told[0]["events"] == []


def test_a_page_of_history_goes_on_through_more_ids_than_it_looks_through_at_once(
    daemon: Any, ann: Any, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.history.MOST_READ", 7)
    own = [ann.submit(project="vision")]
    for _ in range(15):
        daemon.caller("operator").post(f"/v1/jobs/{foreign}/hold")
        daemon.caller("operator").post(f"/v1/jobs/{foreign}/release")
    own.append(ann.submit(project="vision"))
    for way in ("", "&since_s=0"):
        after, seen = 0, []
        while (page := ann.get(f"/v1/events?after={after}{way}").json())["last_event_id"] != after:
            seen += [event["subject"] for event in page["events"]]
            after = page["last_event_id"]
        assert seen == own
        assert after == daemon.service.store.head().event_id
    before, seen = 10_000, []
    while (page := ann.get(f"/v1/events?descending=true&before={before}").json())[
        "last_event_id"
    ] != before:
        seen += [event["subject"] for event in page["events"]]
        before = page["last_event_id"]
    assert seen == own[::-1]


def test_a_confined_token_submits_to_its_projects_only(daemon: Any, ann: Any) -> None:
    assert ann.post("/v1/jobs", json=JOB | {"project": "speech"}).status_code == 403
    batch = ann.post(
        "/v1/jobs", json={"jobs": [JOB | {"project": p} for p in ("speech", "vision")]}
    )
    assert [j["error"] and j["error"]["status"] for j in batch.json()["jobs"]] == [403, None]
    # With one project it need not be named; with two the default is neither.
    assert ann.post("/v1/jobs", json=JOB).status_code == 403
    only = daemon.caller("user", projects=("speech",))
    assert only.get(f"/v1/jobs/{only.submit()}").json()["project"] == "speech"


def test_dependencies_on_foreign_jobs_are_unknown(ann: Any, foreign: str) -> None:
    own = ann.submit(project="vision")
    job = JOB | {"project": "vision", "depends_on": [own, foreign]}
    answer = ann.post("/v1/jobs", json=job)
    assert answer.json()["errors"] == [
        {"field": "depends_on.1", "value": foreign, "problem": "there is no such job"}
    ]
    never = ann.post("/v1/jobs", json=job | {"depends_on": [own, "never"]})
    assert never.json()["detail"] == answer.json()["detail"]
    assert ann.post("/v1/jobs", json=job | {"depends_on": [own]}).status_code == 201


def test_projects_outside_the_token_are_not_listed(daemon: Any, ann: Any) -> None:
    admin = daemon.caller("admin")
    for name in ("vision", "speech"):
        admin.put(f"/v1/projects/{name}", json={})
    listed = [p["limits"]["project"] for p in ann.get("/v1/projects").json()["projects"]]
    assert listed == ["vision"]


def test_the_memory_of_jobs_projects_is_bounded_and_jobs_that_are_gone_stay_hidden(
    daemon: Any, ann: Any, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MOST_PROJECTS", 1)
    own = [ann.submit(project="vision") for _ in range(5)]
    note = daemon.service.note
    daemon.run(note("job_pruned", "job", "gone", actor="", data={}))
    for _ in range(3):
        seen = [e["subject"] for e in ann.get("/v1/events").json()["events"]]
        assert seen == own
    ann.get(f"/v1/events?subject={own[0]}")
    assert len(daemon.app.state.context.projects) == 1, "forgotten when there are too many"


def test_what_an_agent_says_of_workers_names_no_foreign_job(
    daemon: Any, ann: Any, foreign: str
) -> None:
    node = daemon.service._nodes["alpha"]
    said = (
        f"pod leasehold-{foreign}-1 does not go away; see its node's kubelet",
        "processes of lease 17 cannot be killed: 4711 (state D, of user 70001)",
        f"the fan of {foreign} hums",
        "the fan is loud",
    )
    workers = tuple(
        dataclasses.replace(worker, problem=text)
        for worker, text in zip(node.workers, said, strict=False)
    )
    daemon.service._nodes["alpha"] = dataclasses.replace(node, workers=workers, reason=said[0])
    problems = {str(i): text for i, text in enumerate(said[:2])}
    note = daemon.service.note(
        "workers_failed", "node", "alpha", actor="", data={"problems": problems}
    )
    daemon.run(note)
    shown = ann.get("/v1/nodes/alpha").json()
    assert [worker["problem"] for worker in shown["workers"]] == [
        "a pod does not go away; see its node's kubelet",
        "processes of a lease cannot be killed",
        "the fan of another job hums",
        "the fan is loud",
    ]
    assert shown["reason"] == "a pod does not go away; see its node's kubelet"
    (line,) = ann.get("/v1/events?kind=workers_failed").json()["events"]
    assert foreign not in str(line)
    assert "17" not in str(line["data"])
    everything = daemon.caller("viewer").get("/v1/nodes/alpha").json()
    assert [worker["problem"] for worker in everything["workers"]] == list(said)


def test_reservations_are_listed_without_the_owners_of_foreign_ones(daemon: Any, ann: Any) -> None:
    boss, hidden = daemon.caller("operator"), {"project": "", "user": "", "job": ""}
    owners = {"own": {"project": "vision"}, "other": {"project": "speech", "user": "bob"}}
    owners |= {"nobodys": {"user": "eve"}}
    for name, owner in owners.items():
        window = {"worker_type": "v100", "workers": 1, "from_s": 2e9, "until_s": 2.1e9}
        assert boss.post("/v1/reservations", json=window | owner | {"name": name}).is_success
    listed = ann.get("/v1/reservations").json()["reservations"]
    assert {one["reservation"]["name"] for one in listed} == owners.keys()
    for one in listed:
        shown, name = one["reservation"], one["reservation"]["name"]
        assert one == ann.get(f"/v1/reservations/{name}").json()
        seen = hidden | owners["own"] if name == "own" else hidden
        assert {field: shown[field] for field in hidden} == seen
        assert (shown["workers"], shown["until_s"], one["state"]) == (1, 2.1e9, "planned")


def test_the_history_does_not_say_whose_a_foreign_reservation_is(daemon: Any, ann: Any) -> None:
    for name, project in (("own", "vision"), ("other", "speech")):
        data = {"project": project, "user": "bob", "workers": 2}
        note = daemon.service.note("reservation_made", "reservation", name, actor="", data=data)
        daemon.run(note)
    own, other = ann.get("/v1/events?kind=reservation_made").json()["events"]
    assert own["data"] == {"project": "vision", "user": "bob", "workers": 2}
    assert other["data"] == {"workers": 2}


def test_job_types_that_name_a_foreign_job_are_not_listed(
    daemon: Any, ann: Any, foreign: str
) -> None:
    """A job without a type is of type PROJECT/NAME."""
    ann.submit(project="vision", job_type="org/model")
    names = ("resnet", "speech/train", "vision/train", "org/model", "org/other")
    figures = [{"job_type": name, "worker_type": "v100", "steps_per_s": 1.0} for name in names]
    everything = daemon.caller("operator")
    assert everything.put("/v1/throughputs", json={"throughputs": figures}).is_success
    path = "/v1/throughputs"
    assert {one["job_type"] for one in everything.get(path).json()["throughputs"]} >= set(names)
    shown = [one["job_type"] for one in ann.get(path).json()["throughputs"]]
    assert [name for name in names if name in shown] == ["resnet", "vision/train", "org/model"]
    assert ann.get(f"{path}?job_type=speech/train").json()["throughputs"] == []


def test_figures_of_foreign_projects_are_not_shown(daemon: Any, ann: Any, monkeypatch: Any) -> None:
    text = (
        "# TYPE leasehold_project_workers gauge\n"
        'leasehold_project_workers{project="vision",state="due"} 1\n'
        'leasehold_project_workers{project="speech",state="due"} 2\n'
        'leasehold_granted_total{kind="a\\"b",project="speech"} 3\n'
        'leasehold_odd_total{project="vis\\"ion"} 4\n'
        'leasehold_nodes{state="ready",of="project=\\"speech\\""} 5\n'
        "leasehold_jobs 6\n"
    )
    monkeypatch.setattr(daemon.service, "metrics", text.encode)
    assert daemon.caller("viewer").get("/metrics").text == text
    assert daemon.caller("metrics").get("/metrics").text == text
    left = [line.rpartition(" ")[2] for line in ann.get("/metrics").text.splitlines()]
    assert left == ["gauge", "1", "5", "6"]
