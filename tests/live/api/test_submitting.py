"""Submitting: one job, arrays, batches, repetitions, refusals."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from agent.kubernetes import pods, templates
from api import routing
from api.jobs import batches
from api.problems import MOST_SUGGESTED, names_at
from api.schemas.jobs import JobIn
from scheduler.domain.jobs.spec import JobSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

JOB: dict[str, Any] = {"name": "train", "command": ["python", "train.py"]}


BATCH = {"initial": 32, "most": 512, "most_per_worker": 64}


@pytest.fixture
def user(daemon: Any) -> Any:
    return daemon.caller("user", subject="ann")


def test_a_job_is_taken_in_with_every_field_as_it_was_given(daemon: Any, user: Any) -> None:
    everything = JOB | {
        "project": "vision",
        "env": {"SEED": "7", "SCRIPT": "line one\n\tline two"},
        "working_dir": "/home/ann",
        "image": "registry.example/train:1",
        "scale_factor": [4, 1, 2],
        "worker_types": ["v100", "a100-80g"],
        "total_steps": 1000,
        "job_type": "ResNet-18 (batch size 16)",
        "throughputs": {"v100": 2.5},
        "weight": 2,
        "deadline_in_s": 3600,
        "max_run_time_s": 7200,
        "max_failures": 1,
        "retry_oom": False,
        "checkpoint_dir": "/data/ann",
        "labels": {"team": "a/b c", "paper": ""},
        "entity": "lab",
        "notice_s": 1,
        "grace_s": 2,
        "restart_s": 3.5,
        "progress_regex": r"step (\d+)",
        "memory_bytes": 2**30,
        "cpus": 1.5,
        "space_sharing": False,
    }
    answer = user.post("/v1/jobs", json=everything)
    assert (answer.status_code, answer.json()) == (201, {"job_id": "job-1", "created": True})
    job = user.get("/v1/jobs/job-1").json()
    spec = job["spec"]
    assert spec["scale_factors"] == [1, 2, 4], "ascending: the first one counts"
    assert job["deadline_s"] == daemon.clock() + 3600
    assert (job["owner"], job["project"], job["job_type"]) == ("ann", "vision", JOB_TYPE)
    same = everything.keys() - {"scale_factor", "deadline_in_s"}
    assert {name: spec[name] for name in same} == {name: everything[name] for name in same}
    # Not with an image: no agent reads the files of a pod.
    local = user.submit(progress_file="out/steps")
    assert user.get(f"/v1/jobs/{local}").json()["spec"]["progress_file"] == "out/steps"
    assert spec.keys() == JobSpec.__dataclass_fields__.keys()


JOB_TYPE = "ResNet-18 (batch size 16)"


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"min_workers": 2, "max_workers": 6}, [2, 4, 6]),
        ({"max_workers": 4}, [1, 2, 4]),
        ({"min_workers": 3, "max_workers": 3}, [3]),
        ({}, [1]),
    ],
)
def test_a_range_of_workers_becomes_counts(user: Any, given: dict[str, int], counts: Any) -> None:
    assert user.post("/v1/jobs", json=JOB | given).status_code == 201
    spec = user.get("/v1/jobs/job-1").json()["spec"]
    assert spec["scale_factors"] == counts
    assert (spec["min_workers"], spec["max_workers"]) == (
        given.get("min_workers"),
        given.get("max_workers"),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"min_workers": 2}, "min_workers is 2, without max_workers"),
        ({"min_workers": 4, "max_workers": 2}, "min_workers is 4 and max_workers 2"),
        ({"scale_factor": 2, "max_workers": 4}, "give scale_factor, or min_workers and"),
        ({"scale_factor": [1, 2], "min_workers": 1}, "give scale_factor, or min_workers and"),
    ],
)
def test_worker_counts_that_disagree_are_refused(user: Any, given: Any, said: str) -> None:
    job = {name: value for name, value in JOB.items() if name != "scale_factor"}
    answer = user.post("/v1/jobs", json=job | given)
    assert answer.status_code == 422
    assert said in answer.json()["errors"][0]["problem"]


@pytest.mark.parametrize("given", ["two", 1.5, {}])
def test_a_number_of_workers_is_a_number_or_a_list_of_them(user: Any, given: Any) -> None:
    answer = user.post("/v1/jobs", json=JOB | {"scale_factor": given})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["problem"] == "must be a whole number, or a list of them"


def test_nothing_is_made_up_for_a_job_that_says_nothing_of_its_length(user: Any) -> None:
    user.submit()
    spec = user.get("/v1/jobs/job-1").json()["spec"]
    assert (spec["total_steps"], spec["duration_s"]) == (None, None)


def test_a_job_may_be_held_from_the_start(user: Any) -> None:
    user.submit(held=True)
    assert user.get("/v1/jobs/job-1").json()["status"] == "held"


@pytest.mark.parametrize("way", ["field", "header"])
def test_the_same_request_again_gives_the_same_job_and_another_one_a_conflict(
    user: Any, way: str
) -> None:
    def submit(job: dict[str, Any]) -> Any:
        if way == "field":
            return user.post("/v1/jobs", json=job | {"client_id": "k1"})
        return user.post("/v1/jobs", json=job, headers={"Idempotency-Key": "k1"})

    assert submit(JOB).status_code == 201
    again = submit(JOB)
    assert (again.status_code, again.json()) == (200, {"job_id": "job-1", "created": False})
    other = submit(JOB | {"weight": 3})
    assert other.status_code == 409
    assert other.json()["type"] == "urn:leasehold:problem:conflict"
    assert len(user.get("/v1/jobs").json()["jobs"]) == 1


def test_a_jobs_own_client_id_goes_before_the_header(daemon: Any, user: Any) -> None:
    job = JOB | {"client_id": "mine"}
    user.post("/v1/jobs", json=job, headers={"Idempotency-Key": "first"})
    again = user.post("/v1/jobs", json=job, headers={"Idempotency-Key": "second"})
    assert again.json() == {"job_id": "job-1", "created": False}
    # Another owner's ids are another owner's.
    bob = daemon.caller("user", subject="bob")
    assert bob.post("/v1/jobs", json=job).status_code == 201


def test_a_job_that_can_never_run_is_refused_with_the_reason(user: Any) -> None:
    answer = user.post("/v1/jobs", json=JOB | {"scale_factor": 9})
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert problem["type"] == "urn:leasehold:problem:refused"
    assert problem["detail"] == "needs 9 workers, and there are 8"


def test_an_array_becomes_jobs_that_know_their_place(user: Any) -> None:
    answer = user.post("/v1/jobs", json=JOB | {"array": 3, "client_id": "k"})
    assert answer.status_code == 200
    assert [(j["index"], j["array_index"], j["job_id"]) for j in answer.json()["jobs"]] == [
        (0, 0, "job-1"),
        (0, 1, "job-2"),
        (0, 2, "job-3"),
    ]
    second = user.get("/v1/jobs/job-2").json()
    assert second["name"] == "train[1]"
    assert second["job_type"] == "default/train", "its elements share what is learned"
    assert second["spec"]["array_index"] == 1
    assert second["spec"]["env"] == {"LEASEHOLD_ARRAY_INDEX": "1", "LEASEHOLD_ARRAY_COUNT": "3"}
    again = user.post("/v1/jobs", json=JOB | {"array": {"count": 3}, "client_id": "k"}).json()
    assert [(j["job_id"], j["created"]) for j in again["jobs"]] == [
        ("job-1", False),
        ("job-2", False),
        ("job-3", False),
    ]


def test_invalid_jobs_of_a_batch_do_not_spoil_the_others(user: Any) -> None:
    batch = [
        JOB,
        {"name": "no command"},
        JOB | {"scale_factor": 100},
        "not a job",
        JOB | {"array": 2},
    ]
    answer = user.post("/v1/jobs", json={"jobs": batch})
    assert answer.status_code == 207
    jobs = answer.json()["jobs"]
    assert [(j["index"], j["job_id"]) for j in jobs] == [
        (0, "job-1"),
        (1, ""),
        (2, ""),
        (3, ""),
        (4, "job-2"),
        (4, "job-3"),
    ]
    fields = {e["field"]: e["value"] for e in jobs[1]["error"]["errors"]}
    assert fields == {"name": "no command", "command": None}
    assert jobs[2]["error"]["type"] == "urn:leasehold:problem:refused"
    assert jobs[3]["error"]["status"] == 422
    assert jobs[0]["error"] is None
    fine = user.post("/v1/jobs", json={"jobs": [JOB, JOB]})
    assert fine.status_code == 200


def test_a_batch_under_one_key_can_be_repeated(user: Any) -> None:
    def submit() -> list[tuple[str, bool]]:
        answer = user.post(
            "/v1/jobs", json={"jobs": [JOB, JOB]}, headers={"Idempotency-Key": "batch"}
        )
        return [(j["job_id"], j["created"]) for j in answer.json()["jobs"]]

    assert submit() == [("job-1", True), ("job-2", True)]
    assert submit() == [("job-1", False), ("job-2", False)]


def test_a_thousand_jobs_are_taken_at_once_and_no_more(user: Any) -> None:
    answer = user.post("/v1/jobs", json={"jobs": [JOB] * 1000})
    assert answer.status_code == 200
    assert len({j["job_id"] for j in answer.json()["jobs"]}) == 1000
    assert user.post("/v1/jobs", json={"jobs": [JOB] * 1001}).status_code == 422
    assert user.post("/v1/jobs", json={"jobs": []}).status_code == 422
    arrays = user.post("/v1/jobs", json={"jobs": [JOB | {"array": 600}] * 2})
    assert arrays.status_code == 422
    assert arrays.json()["errors"] == [
        {"field": "jobs", "value": 1200, "problem": "with all arrays at most 1000 jobs are taken"}
    ]


def test_a_dry_run_changes_nothing(user: Any) -> None:
    one = user.post("/v1/jobs?dry_run=true", json=JOB | {"scale_factor": 2}).json()
    assert one["fits"]
    assert one["configurations"][0]["count"] == 2
    never = user.post("/v1/jobs?dry_run=true", json=JOB | {"scale_factor": 9}).json()
    assert (never["fits"], never["reason"]) == (False, "too_large")
    assert (one["starts_s"], one["forecast"]) == (None, "")
    timed = user.post("/v1/jobs?dry_run=true&forecast=true", json=JOB).json()
    assert timed["starts_s"] > 0
    array = JOB | {"array": {"count": 2}}
    for job in (array, JOB | {"held": True}):
        told = user.post("/v1/jobs?dry_run=true&forecast=true", json=job).json()
        assert told["forecast"].startswith("no forecast: ")
    wrong = user.post("/v1/jobs?forecast=true", json=JOB)
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "forecast")
    for _ in range(5):
        often = user.post("/v1/jobs?dry_run=true&forecast=true", json=JOB).json()
    assert (often["fits"], often["starts_s"]) == (True, None)
    assert "try again in 5 s" in often["forecast"]
    batch = user.post("/v1/jobs?dry_run=true", json={"jobs": [JOB, {}]})
    assert batch.status_code == 207
    assert batch.json()["jobs"][0]["fit"]["fits"]
    assert batch.json()["jobs"][1]["error"]["status"] == 422
    assert user.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/../b"}, "name"),
        ({"name": "tab\t"}, "name"),
        ({"name": "line\n"}, "name"),
        ({"name": "a" * 129}, "name"),
        ({"name": 7}, "name"),
        ({"project": "-dash"}, "project"),
        ({"command": []}, "command"),
        ({"command": [""]}, ""),
        ({"command": "python train.py"}, "command"),
        ({"command": ["python", "a\0b"]}, "command.1"),
        ({"command": ["python", "bell\a"]}, "command.1"),
        ({"command": ["a" * 100_000] * 11}, ""),
        ({"env": {"A=B": "c"}}, "env.A=B.[key]"),
        ({"env": {"1A": "c"}}, "env.1A.[key]"),
        ({"env": {"A": "\0"}}, "env.A"),
        ({"env": {"LEASEHOLD_LEASE": "1"}}, "env.LEASEHOLD_LEASE.[key]"),
        ({"env": {f"V{i}": "" for i in range(201)}}, "env"),
        ({"working_dir": "relative"}, "working_dir"),
        ({"working_dir": "/a/../etc"}, "working_dir"),
        ({"checkpoint_dir": "/a/.."}, "checkpoint_dir"),
        ({"progress_file": "../../etc/passwd"}, "progress_file"),
        ({"progress_regex": "("}, "progress_regex"),
        ({"progress_regex": "no group"}, "progress_regex"),
        ({"progress_regex": "(" + "a{900}" * 50 + ")"}, "progress_regex"),
        ({"progress_regex": "(" + "a" * 500 + ")"}, "progress_regex"),
        ({"image": "-v"}, "image"),
        ({"scale_factor": 0}, "scale_factor.0"),
        ({"scale_factor": True}, "scale_factor"),
        ({"scale_factor": 1.5}, "scale_factor"),
        ({"scale_factor": [1, 2.5]}, "scale_factor.1"),
        ({"scale_factor": [2, 2]}, "scale_factor"),
        ({"scale_factor": []}, "scale_factor"),
        ({"scale_factor": 10**7}, "scale_factor.0"),
        ({"min_workers": 0, "max_workers": 2}, "min_workers"),
        ({"max_workers": 10**7}, "max_workers"),
        ({"max_workers": "4"}, "max_workers"),
        ({"total_steps": 0}, "total_steps"),
        ({"total_steps": "100"}, "total_steps"),
        ({"total_steps": 1, "duration_s": 1}, ""),
        ({"total_steps": 1, "batch": {}}, "batch.initial"),
        ({"total_steps": 1, "batch": BATCH | {"initial": 0}}, "batch.initial"),
        ({"total_steps": 1, "batch": BATCH | {"most": "512"}}, "batch.most"),
        ({"total_steps": 1, "batch": BATCH | {"most": 31}}, "batch"),
        ({"total_steps": 1, "batch": BATCH | {"size": 64}}, "batch.size"),
        ({"batch": BATCH}, ""),
        ({"deadline_s": 1.0, "deadline_in_s": 1.0}, ""),
        ({"weight": -1}, "weight"),
        ({"weight": 0}, "weight"),
        ({"throughputs": {"v100": 0}}, "throughputs.v100"),
        ({"throughputs": {"v\n": 1}}, "throughputs.v\n.[key]"),
        ({"labels": {"": "x"}}, "labels..[key]"),
        ({"labels": {"a": "x" * 256}}, "labels.a"),
        ({"labels": {f"k{i}": "" for i in range(65)}}, "labels"),
        ({"depends_on": ["../x"]}, "depends_on.0"),
        ({"array": 0}, "array.count"),
        ({"array": {"count": 1001}}, "array.count"),
        ({"array": {"size": 3}}, "array.count"),
        ({"notice_s": 1e9}, "notice_s"),
        ({"memory_bytes": 12}, "memory_bytes"),
        ({"cpus": 0}, "cpus"),
        ({"retry_oom": "yes"}, "retry_oom"),
        ({"client_id": "with space"}, "client_id"),
        ({"bogus": 1}, "bogus"),
    ],
)
def test_a_bad_field_is_refused_and_named(user: Any, fields: dict[str, Any], field: str) -> None:
    answer = user.post("/v1/jobs", json=JOB | fields)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert field in {error["field"] for error in answer.json()["errors"]}
    assert user.get("/v1/jobs").json()["jobs"] == []


def test_limits_of_a_batch_are_kept_whole_and_refused_by_name_and_value(user: Any) -> None:
    job_id = user.submit(total_steps=1000, batch=BATCH)
    kept = user.get(f"/v1/jobs/{job_id}").json()["spec"]["batch"]
    assert kept == BATCH | {"least_per_worker": 1}
    answer = user.post("/v1/jobs", json=JOB | {"total_steps": 1, "batch": BATCH | {"most": 31}})
    said = answer.json()["errors"][0]["problem"]
    assert said.startswith("batch limits: field 'initial' is 32; it must be >= 1 and at most")
    few = {"total_steps": 1, "batch": BATCH | {"least_per_worker": 64}, "scale_factor": [9, 16]}
    said = user.post("/v1/jobs", json=JOB | few).json()["errors"][0]["problem"]
    assert "gives each of 9 or 16 workers 64 to 64 per pass" in said
    user.submit(**few | {"scale_factor": [8, 16]})
    both = {"total_steps": 1, "batch": BATCH, "mixed_gangs": True}
    answer = user.post("/v1/jobs", json=JOB | both)
    assert "give batch or mixed_gangs, not both" in answer.json()["errors"][0]["problem"]
    answer = user.post("/v1/jobs", json=JOB | {"duration_s": 60, "batch": BATCH})
    assert "needs total_steps" in answer.json()["errors"][0]["problem"]


@pytest.mark.parametrize(("body", "field", "near"), [
    (JOB | {"dedline_s": 1}, "dedline_s", "deadline_s"),
    (JOB | {"kubernetes": {"volume": []}}, "kubernetes.volume", "volumes"),
    (JOB | {"kubernetes": {"volumes": [{"clam": "x"}]}}, "kubernetes.volumes.0.clam", "claim"),
    (JOB | {"array": {"cont": 3}}, "array.cont", "count"),
    (JOB | {"type": "v100"}, "type", "worker_types"),
    (JOB | {"workers": 2}, "workers", "scale_factor"),
    (JOB | {"after": ["a"]}, "after", "depends_on"),
    (JOB | {"node-fault-retries": 2}, "node-fault-retries", "max_node_faults"),
])  # fmt: skip
def test_an_unknown_field_is_answered_with_the_nearest_known_one(
    user: Any, body: Any, field: str, near: str
) -> None:
    for answer in (user.post("/v1/jobs", json=body), user.post("/v1/jobs", json={"jobs": [body]})):
        shown = answer.json()
        shown = shown if "errors" in shown else shown["jobs"][0]["error"]
        problems = {one["field"]: one["problem"] for one in shown["errors"]}
        assert problems[field] == f"unknown field; did you mean '{near}'?"


def test_other_requests_and_parameters_name_the_nearest_one_too(user: Any) -> None:
    answer = user.post("/v1/jobs:act", json={"acton": "cancel", "action": "cancel", "ids": ["a"]})
    assert answer.json()["errors"][0]["problem"] == "unknown field; did you mean 'action'?"
    answer = user.get("/v1/jobs?stats=waiting")
    assert answer.json()["errors"][0]["problem"] == "unknown parameter; did you mean 'status'?"


def test_many_unknown_fields_cost_no_more_than_few(user: Any) -> None:
    many = {f"weigh{i}": 1 for i in range(300)}
    problems = user.post("/v1/jobs", json=JOB | many).json()["errors"]
    assert sum("did you mean" in one["problem"] for one in problems) == MOST_SUGGESTED
    (long,) = user.post("/v1/jobs", json=JOB | {"weight" * 20: 1}).json()["errors"]
    assert long["problem"] == "unknown field; leave it out"


@pytest.mark.parametrize("package", [templates, pods])
def test_fields_that_a_refused_template_is_referred_to_exist(package: ModuleType) -> None:
    texts = [one.read_text() for one in Path(package.__path__[0]).glob("*.py")]
    named = {
        name for text in texts
        for name in re.findall(r"the job's field '([\w.]+)'|_INSTEAD.format\(\"([\w.]+)", text)
    }  # fmt: skip
    fields = {first or second for first, second in named}
    assert fields
    for name in fields:
        *path_to, last = name.split(".")
        assert last in names_at(JobIn, path_to)


def test_every_bad_field_is_listed_with_its_value(user: Any) -> None:
    bad = {"name": "", "command": ["x" * 1000, 3], "weight": -2, "bogus": {"a": [1]}}
    problem = user.post("/v1/jobs", json=bad).json()
    found = {e["field"]: (e["value"], e["problem"]) for e in problem["errors"]}
    assert found.keys() == {"name", "command.1", "weight", "bogus"}
    assert found["weight"][0] == -2
    assert found["bogus"] == ({"a": [1]}, "unknown field; leave it out")
    assert problem["instance"] == "/v1/jobs"
    assert "'name'" in problem["detail"]
    long = user.post("/v1/jobs", json=JOB | {"name": "x" * 5000}).json()["errors"][0]["value"]
    assert len(long) < 250


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1,",
        b'{"name": NaN}',
        b'"\\ud800"',
        b"[" * 5000,
        b"null",
        b"[]",
        b"7",
        b"1e999",
    ],
)
def test_a_body_that_is_no_job_is_refused(user: Any, body: bytes) -> None:
    for path in ("/v1/jobs", "/v1/jobs:act"):
        answer = user.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, (path, answer.text)


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_media_types_than_json_are_refused(user: Any, media_type: str) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    for method, path in (("POST", "/v1/jobs"), ("POST", "/v1/jobs:act"), ("PATCH", "/v1/jobs")):
        answer = user.request(method, path, content=b'{"a": 1}', headers=headers)
        assert answer.status_code == 415, answer.text


def test_a_daemon_that_cannot_write_says_so(serve: Callable[..., Any]) -> None:
    daemon = serve()
    daemon.service.failure = RuntimeError("secret details")
    answer = daemon.caller("user").post("/v1/jobs", json=JOB)
    assert answer.status_code == 500
    assert "secret details" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["detail"]


def test_a_deadline_that_has_passed_is_refused_by_name_and_value(user: Any) -> None:
    job = {"name": "a", "command": ["x"], "deadline_s": 100.5}
    for path in ("/v1/jobs", "/v1/jobs?dry_run=true"):
        answer = user.post(path, json=job)
        assert answer.status_code == 422
        assert "deadline_s is 1970-01-01T00:01:40+00:00, which" in answer.json()["detail"]
    for path in ("/v1/jobs", "/v1/jobs?dry_run=true"):
        answer = user.post(path, json={"jobs": [job, job | {"deadline_s": 5e6}]})
        late, good = answer.json()["jobs"]
        assert late["error"]["status"] == 422
        assert good["error"] is None


# -- work is bounded before it is done ------------------------------------------------------------


@pytest.fixture
def nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when an element of an array is made, or a job is read."""

    def made(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was expanded before it was counted")

    monkeypatch.setattr("api.jobs.batches.expand_submissions", made)
    monkeypatch.setattr("api.jobs.batches.read_jobs", made)


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
@pytest.mark.usefixtures("nothing_is_made")
def test_arrays_are_counted_before_they_are_written_out(user: Any, query: str) -> None:
    # 78 kB, and a million jobs.
    answer = user.post(f"/v1/jobs{query}", json={"jobs": [JOB | {"array": {"count": 1000}}] * 1000})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["value"] == 1_000_000
    assert error["problem"] == "with all arrays at most 1000 jobs are taken"


@pytest.mark.usefixtures("nothing_is_made")
def test_one_array_is_held_against_the_operators_limit(serve: Callable[..., Any]) -> None:
    user = serve(max_batch=10).caller("user")
    answer = user.post("/v1/jobs", json=JOB | {"array": 11})
    assert (answer.status_code, answer.json()["errors"][0]["value"]) == (422, 11)


@pytest.mark.usefixtures("nothing_is_made")
def test_an_array_counts_with_the_bytes_that_its_elements_would_be(user: Any) -> None:
    # 130 kB of it a thousand times would be 130 MB of rows.
    answer = user.post("/v1/jobs", json=JOB | {"array": 1000, "env": {"A": "x" * 130_000}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["value"] > 130_000_000
    assert "at most 33554432 are taken" in error["problem"]


def test_an_array_of_few_large_elements_is_taken(user: Any) -> None:
    answer = user.post("/v1/jobs", json=JOB | {"array": 10, "env": {"A": "x" * 130_000}})
    assert answer.status_code == 200
    assert not any(one["error"] for one in answer.json()["jobs"])


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
@pytest.mark.usefixtures("nothing_is_made")
def test_expressions_are_counted_before_any_is_compiled(user: Any, query: str) -> None:
    jobs = [JOB | {"progress_regex": f"{i} (x{{1,900}}){{1,900}}"} for i in range(21)]
    answer = user.post(f"/v1/jobs{query}", json={"jobs": jobs})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["value"] == 21


def test_a_batch_may_have_one_expression_in_all_of_its_jobs(user: Any) -> None:
    jobs = [JOB | {"progress_regex": r"step (\d+)"}] * 1000
    answer = user.post("/v1/jobs", json={"jobs": jobs})
    assert answer.status_code == 200
    assert not any(one["error"] for one in answer.json()["jobs"])


@pytest.mark.usefixtures("nothing_is_made")
def test_the_jobs_that_a_batch_waits_for_are_counted(user: Any) -> None:
    jobs = [JOB | {"depends_on": [f"j-{i}-{k}" for k in range(100)]} for i in range(11)]
    answer = user.post("/v1/jobs", json={"jobs": jobs})
    assert (answer.status_code, answer.json()["errors"][0]["value"]) == (422, 1100)


@pytest.mark.parametrize(
    ("body", "beside"),
    [
        (JOB | {"array": 3}, True),
        ({"jobs": [JOB]}, True),
        (JOB | {"progress_regex": "step (?P<steps>[0-9]+)"}, True),
        (JOB | {"env": {"TEXT": "x" * 10_000}}, True),
        (JOB, False),  # a small one takes less than a thread does
    ],
)
def test_what_may_take_long_to_read_and_write_out_is_read_beside_the_event_loop(
    user: Any, monkeypatch: pytest.MonkeyPatch, body: Any, beside: bool
) -> None:
    threads = set()
    real_read, real_make = batches._read, batches._make

    def read(*args: Any, **kwargs: Any) -> Any:
        threads.add(threading.current_thread())
        return real_read(*args, **kwargs)

    def make(*args: Any, **kwargs: Any) -> Any:
        threads.add(threading.current_thread())
        return real_make(*args, **kwargs)

    monkeypatch.setattr(batches, "_read", read)
    monkeypatch.setattr(batches, "_make", make)
    for query in ("", "?dry_run=true"):
        assert user.post("/v1/jobs" + query, json=body).status_code in {200, 201}
    assert threads
    assert (threading.main_thread() not in threads) is beside


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/jobs"), ("POST", "/v1/jobs:act"), ("PUT", "/v1/throughputs")],
)
def test_values_of_a_body_are_counted_before_they_are_made(
    daemon: Any, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    decoded = []

    headers = {"Content-Type": "application/json"}
    operator = daemon.caller("operator")
    fake = SimpleNamespace(loads=decoded.append, JSONDecodeError=orjson.JSONDecodeError)
    monkeypatch.setattr(routing, "orjson", fake)
    body = b"[" + b"[]," * 1_000_000 + b"[]]"
    answer = operator.request(method, path, content=body, headers=headers)
    assert answer.status_code == 413
    assert "has some 2000002 values" in answer.json()["detail"]
    assert decoded == []
    monkeypatch.undo()
    # Brackets within texts do not count.
    answer = operator.request(
        method, path, content=b'{"a": "' + b'[\\",' * 300_000 + b'"}', headers=headers
    )
    assert answer.status_code == 422


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
@pytest.mark.parametrize("jobs", [
    [{"array": 3, "checkpoint_dir": "/ckpt"}],
    [{"array": 2, "checkpoint_dir": "/ckpt/{name}"}],
    [{"checkpoint_dir": "/ckpt"}, {"name": "other", "checkpoint_dir": "/ckpt"}],
    [{"array": 3, "checkpoint_dir": "/ckpt/{index}"}, {"checkpoint_dir": "/ckpt/1"}],
])  # fmt: skip
def test_jobs_of_one_request_may_not_share_a_checkpoint_folder(
    user: Any, jobs: list[dict[str, Any]], query: str
) -> None:
    answer = user.post(f"/v1/jobs{query}", json={"jobs": [JOB | job for job in jobs]})
    assert answer.status_code == 207
    for item in answer.json()["jobs"]:
        (error,) = item["error"]["errors"]
        assert error["field"] == "checkpoint_dir"
        assert "each would load the checkpoints of another" in error["problem"]
        assert "/{job_id}" in error["problem"]
    assert user.get("/v1/jobs").json()["jobs"] == []


def test_jobs_with_folders_of_their_own_are_taken(user: Any) -> None:
    for folder in ("/ckpt/{index}", "/ckpt/{job_id}", "/ckpt/{name}-{index}", None):
        answer = user.post("/v1/jobs", json=JOB | {"array": 3, "checkpoint_dir": folder})
        assert answer.status_code == 200, answer.json()
    one = user.post("/v1/jobs", json=JOB | {"checkpoint_dir": "/ckpt"})
    again = user.post("/v1/jobs", json=JOB | {"checkpoint_dir": "/ckpt"})
    assert (one.status_code, again.status_code) == (201, 201), "a later job may go on from it"
    answer = user.post("/v1/jobs", json=JOB | {"checkpoint_dir": "/ckpt/{index}"})
    assert answer.status_code == 422
    assert "the job is no array" in answer.json()["errors"][0]["problem"]


def test_placeholders_are_counted_since_each_may_become_long(user: Any) -> None:
    answer = user.post("/v1/jobs", json=JOB | {"env": {"A": "{name}" * 1001}})
    assert (answer.status_code, answer.json()["errors"][0]["value"]) == (422, 1001)


@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_an_expression_that_re2_does_not_know_is_refused_with_what_it_lacks(
    user: Any, dry_run: str
) -> None:
    for given in (JOB | {"progress_regex": r"(?<=step )(\d+)"}, JOB | {"progress_regex": r"(.)\1"}):
        answer = user.post(f"/v1/jobs?dry_run={dry_run}", json=given)
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert error["field"] == "progress_regex"
        assert "RE2 has no lookahead, lookbehind, backreferences" in error["problem"]


def test_no_expression_is_compiled_by_python(user: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ["(" + f"(a{{1,9}}){number}*" * 40 + ")" for number in range(10)]

    def refuse(pattern: str, *_: Any) -> Any:
        assert pattern not in slow
        return compiled(pattern)

    import re

    compiled = re.compile
    monkeypatch.setattr(re, "compile", refuse)
    batch = {"jobs": [JOB | {"progress_regex": pattern} for pattern in slow]}
    answer = user.post("/v1/jobs?dry_run=true", json=batch)
    assert answer.status_code in {200, 207}


def test_what_is_wrong_with_a_value_is_said_in_plain_words(user: Any) -> None:
    bad = {
        "command": "train.py",
        "scale_factor": -1,
        "total_steps": "many",
        "weight": 0,
        "max_failures": 1.5,
        "retry_oom": "perhaps",
        "env": [],
        "labels": 3,
        "array": 0,
        "depends_on": ["a"] * 1001,
    }
    problem = user.post("/v1/jobs", json={"name": "a"} | bad).json()
    said = {entry["field"].partition(".")[0]: entry["problem"] for entry in problem["errors"]}
    assert said.keys() == bad.keys()
    assert said["env"] == "must be names with values"
    assert said["array"] == said["scale_factor"] == "must be at least 1"
    assert said["total_steps"] == "must be a number"
    assert said["max_failures"] == "must be a whole number"
    assert said["retry_oom"] == "must be true or false"
    assert said["depends_on"] == "must have at most 1000 entries, and has 1001"
    assert [words for words in said.values() if "hould" in words or "alid" in words] == []


LAYERS = [{"parameters": 1e6, "flops": 1e9, "kept_bytes": 1e6, "output_bytes": 1e4}]
MODEL = {"batch": 8, "layers": LAYERS}


def nested(levels):
    found = {}
    for _ in range(levels):
        found = {"a": found}
    return found


def text_model(value):
    """Return a model as a text in which one value is odd."""
    return f'{{"batch": 8, "config": {{"model_type": "gpt2", "odd": {value}}}}}'


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ([], "Expected `object`"),
        ("mine.yaml", "must be an object with config or layers, and batch"),
        ("[" * 100_000, "must be an object with config or layers, and batch"),
        (text_model('"\\ud800"'), "must be an object with config or layers, and batch"),
        (json.dumps(text_model('"\\ud800"')), "Expected `object`"),
        (text_model("NaN"), "must be an object with config or layers, and batch"),
        (text_model("[" * 100 + "]" * 100), "32 levels of lists and objects"),
        (text_model(f"1{'0' * 400}"), "must be an object with config or layers, and batch"),
        (text_model('"\\u0000"'), "texts without NUL"),
        ({}, "missing required field `batch`"),
        ({"batch": 8}, "neither config nor layers"),
        (MODEL | {"config": {}}, "both config and layers"),
        (MODEL | {"layers": []}, "layers is []"),
        (MODEL | {"layers": LAYERS * 129}, "129 layers, and 128 are taken"),
        (MODEL | {"batch": 0}, "batch is 0"),
        ({"batch": 8, "config": {"model_type": "gpt2", "n_layer": "x"}}, "n_layer"),
        ({"batch": 8, "config": nested(20)}, "model_type"),
        ({"batch": 8, "config": nested(50)}, "32 levels of lists and objects"),
        ({"batch": 8, "config": nested(900)}, "is nested deeper than 64 levels"),
        (MODEL | {"name": "x" * 70_000}, "65536 are taken"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"array": 2}])
def test_a_model_that_cannot_be_used_is_refused_with_its_fault(user, model, told, more):
    job = {"name": "n", "command": ["c"], "total_steps": 5, "model": model} | more
    answer = user.post("/v1/jobs", json=job)
    assert answer.status_code == 422, answer.text
    assert told in answer.text
    assert user.get("/v1/jobs").json()["jobs"] == []


def test_a_request_has_few_different_models_and_one_model_as_often_as_it_likes(user):
    def jobs(models):
        one = {"name": "n", "command": ["c"], "total_steps": 5}
        return {"jobs": [one | {"model": model} for model in models]}

    many = jobs([MODEL | {"batch": batch} for batch in range(1, 22)])
    answer = user.post("/v1/jobs", json=many)
    assert answer.status_code == 422
    assert "21 different values of model, and at most 20 are taken" in answer.text
    answer = user.post("/v1/jobs", json=jobs([MODEL] * 30))
    assert answer.status_code == 200, answer.text
    jobs = user.get("/v1/jobs").json()["jobs"]
    assert len({job["job_type"] for job in jobs}) == 1


def test_a_model_goes_with_no_other_figures(user):
    job = {"name": "n", "command": ["c"], "total_steps": 5, "model": MODEL}
    for field, value in (
        ("throughputs", {"v100": 1.0}),
        ("batch", BATCH),
        ("mixed_gangs", True),
    ):
        answer = user.post("/v1/jobs", json=job | {field: value})
        assert answer.status_code == 422
        assert f"give model or {field}, not both" in answer.text
    answer = user.post("/v1/jobs", json=job | {"total_steps": None})
    assert "model needs total_steps" in answer.text
