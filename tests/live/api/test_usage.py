"""The ledger over REST."""

from __future__ import annotations

from typing import Any

import pytest


def test_use_is_added_up_for_those_who_may_see_it(daemon: Any) -> None:
    for project, owner in (("vision", "ada"), ("nlp", "bob")):
        user = daemon.caller("user", subject=owner, projects=(project,))
        job = user.submit(project=project, job_type="resnet")
        daemon.service.run(job)
    daemon.clock.seconds += 90.0
    operator = daemon.caller("operator")
    found = operator.get("/v1/usage?by=project&by=owner").json()
    assert found["until_s"] - found["since_s"] == 30 * 86400.0 or found["since_s"] == 0.0
    rows = [(r["project"], r["owner"], r["leases"], r["worker_us"]) for r in found["usage"]]
    assert rows == [("nlp", "bob", 1, 90_000_000), ("vision", "ada", 1, 90_000_000)]
    assert found["worker_s"] == 180.0
    (whole,) = operator.get("/v1/usage").json()["usage"]
    assert (whole["worker_s"], whole["project"], whole["day_s"]) == (180.0, None, None)
    (only,) = operator.get("/v1/usage?by=project&project=nlp").json()["usage"]
    assert only["project"] == "nlp"
    confined = daemon.caller("viewer", projects=("vision",))
    assert [r["project"] for r in confined.get("/v1/usage?by=project").json()["usage"]] == [
        "vision"
    ]
    assert confined.get("/v1/usage?project=nlp").json()["usage"] == []
    assert confined.get("/v1/usage").json()["worker_s"] == 90.0


def test_the_window_ends_now_at_the_latest(daemon: Any) -> None:
    caller = daemon.caller("operator")
    daemon.service.run(caller.submit())
    now_s = daemon.clock.seconds = daemon.clock.seconds + 10.0
    found = caller.get(f"/v1/usage?until_s={now_s + 500}&since_s={now_s - 4}").json()
    assert (found["until_s"], found["worker_s"]) == (now_s, 4.0)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("by=colour", "by"),
        ("by=job&by=job", "twice"),
        ("since_s=5&until_s=5", "before"),
        ("since_s=nan", "since_s"),
        ("project=", "project"),
        ("by=day&since_s=0&until_s=90000000", "days"),
    ],
)
def test_what_cannot_be_added_up_is_refused(daemon: Any, query: str, named: str) -> None:
    daemon.clock.seconds = 1e9
    answer = daemon.caller("viewer").get(f"/v1/usage?{query}")
    assert answer.status_code == 422, answer.text
    assert named in answer.text
