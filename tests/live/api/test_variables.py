"""Roles that see the values of a job's variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Caller, Daemon

PASSWORD = "hunter2-in-the-clear"
TEMPLATE = {
    "spec": {
        "containers": [
            {"name": "side", "image": "side", "env": [{"name": "PASSWORD", "value": PASSWORD}]}
        ]
    }
}
JOB = {
    "name": "train",
    "command": ["python"],
    "image": "train:1",
    "env": {"PASSWORD": PASSWORD, "EMPTY": ""},
    "kubernetes": {"template": TEMPLATE},
}


def submit(caller: Caller, **fields: object) -> str:
    answer = caller.post("/v1/jobs", json=JOB | fields)
    assert answer.is_success, answer.text
    found = answer.json()
    return str(found["job_id"] if "job_id" in found else found["jobs"][1]["job_id"])


@pytest.mark.parametrize("fields", [{}, {"array": 2}])
@pytest.mark.parametrize("role", ["user", "admin"])
def test_values_are_shown_to_the_owner_and_to_administrators(
    daemon: Daemon, role: str, fields: dict[str, object]
) -> None:
    job_id = submit(daemon.caller("user", subject="ann"), **fields)
    caller = daemon.caller(role, subject="ann" if role == "user" else "boss")
    spec = caller.get(f"/v1/jobs/{job_id}").json()["spec"]
    assert spec["env"]["PASSWORD"] == PASSWORD
    assert spec["kubernetes"]["template"] == TEMPLATE


@pytest.mark.parametrize("fields", [{}, {"array": 2}])
@pytest.mark.parametrize("role", ["viewer", "user", "operator"])
def test_others_see_the_names_alone(daemon: Daemon, role: str, fields: dict[str, object]) -> None:
    job_id = submit(daemon.caller("user", subject="ann"), **fields)
    caller = daemon.caller(role, subject="eve")
    spec = caller.get(f"/v1/jobs/{job_id}").json()["spec"]
    assert {name: spec["env"][name] for name in ("PASSWORD", "EMPTY")} == {
        "PASSWORD": "***",
        "EMPTY": "***",
    }
    (container,) = spec["kubernetes"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "PASSWORD", "value": "***"}]
    # The owner's values do not change.
    assert submit(daemon.caller("user", subject="ann"), **fields)


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_no_route_that_reads_shows_a_value_to_others(daemon: Daemon, role: str) -> None:
    job_id = submit(daemon.caller("user", subject="ann"))
    daemon.service.run(job_id)
    daemon.caller("user", subject="ann").patch(f"/v1/jobs/{job_id}", json={"weight": 2.0})
    eve = daemon.caller(role, subject="eve")
    paths = sorted(
        route.path.replace("{job_id}", job_id)
        for route in daemon.app.routes
        if "GET" in getattr(route, "methods", ()) and "{name}" not in route.path
        if route.path != "/changes"  # a stream without end, which names nothing
    )
    assert len(paths) > 15
    for path in paths:
        assert PASSWORD not in eve.get(path).text, path
    assert "job_submitted" in eve.get("/v1/events").text
