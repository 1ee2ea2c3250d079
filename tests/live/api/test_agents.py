"""The agents' side."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from agent.link.http_link import HttpLink, enrol
from api.app import stop_waiting
from scheduler.protocol.desired import Desired, DesiredLease, desired_from_dict
from scheduler.protocol.reports import report_from_dict

REPORT: dict[str, Any] = {
    "node": "alpha",
    "incarnation": 12.5,
    "sequence": 3,
    "term": 1,
    "revision": 2,
    "workers": [{"index": 0, "worker_type": "v100", "problem": ""}],
    "leases": [],
}


@pytest.fixture
def alpha(daemon: Any) -> Any:
    return daemon.caller("agent", subject="alpha")


def test_the_desired_set_arrives_as_it_was_sent(daemon: Any, alpha: Any) -> None:
    lease = DesiredLease(
        lease_id=1,
        attempt=1,
        token=1,
        job_id="job-1",
        command=("python",),
        env={"A": "b"},
        workers=(0, 1),
        world_size=2,
        local_ranks=(0, 1),
        remaining_s=10.0,
    )
    wanted = Desired(term=2, revision=7, held_s=0.5, leases=(lease,))
    daemon.service.wanted["alpha"] = wanted
    answer = alpha.get("/v1/agent/desired?term=2&revision=6&wait_s=30")
    assert desired_from_dict(answer.json()) == wanted
    assert "env" in answer.json()["leases"][0]


def test_the_question_is_held_until_there_is_news_or_the_time_is_over(
    serve: Any,
) -> None:
    daemon = serve(max_wait_s=0.05)
    alpha = daemon.caller("agent", subject="alpha")
    began = time.monotonic()
    answer = alpha.get("/v1/agent/desired?term=1&revision=1&wait_s=3600")
    assert answer.json()["revision"] == 1
    waited_s = time.monotonic() - began
    assert 0.04 < waited_s < 600.0, "no longer than the settings allow, and not an hour"


def test_a_question_that_waits_is_answered_when_the_service_stops(daemon: Any, alpha: Any) -> None:
    async def scenario() -> Any:
        path = "/v1/agent/desired?term=1&revision=1&wait_s=60"
        asking = asyncio.ensure_future(alpha._request("GET", path))
        await asyncio.sleep(0.05)
        stop_waiting(daemon.app)
        return await asyncio.wait_for(asking, 50.0)

    answer = daemon.run(scenario())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_report_is_taken_in_with_what_the_headers_tell(daemon: Any, alpha: Any) -> None:
    headers = {"X-Leasehold-Address": "10.0.0.7", "X-Leasehold-Agent": "1.2.0"}
    answer = alpha.post("/v1/agent/report", json=REPORT, headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    ((report, address, version),) = daemon.service.reports
    assert (report.node, report.sequence, address, version) == ("alpha", 3, "10.0.0.7", "1.2.0")


def test_an_agent_speaks_for_its_own_node_only(daemon: Any, alpha: Any) -> None:
    answer = alpha.post("/v1/agent/report", json=REPORT | {"node": "beta"})
    assert answer.status_code == 403
    assert daemon.service.reports == []


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("POST", "/v1/agent/report", b"{", {}),
        ("POST", "/v1/agent/report", b"[]", {}),
        ("POST", "/v1/agent/report", b'{"node": "alpha"}', {}),
        ("GET", "/v1/agent/desired?term=x", b"", {}),
        ("GET", "/v1/agent/desired?revision=-1", b"", {}),
        ("GET", "/v1/agent/desired?wait_s=nan", b"", {}),
        ("GET", "/v1/agent/desired?wait_s=1e9", b"", {}),
        ("PUT", "/v1/agent/logs/1/out?offset=-1", b"", {}),
        ("PUT", "/v1/agent/logs/1/out?offset=" + "9" * 39, b"", {}),
    ],
)
def test_what_an_agent_cannot_mean_is_refused(
    alpha: Any, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    answer = alpha.request(method, path, content=body, headers=headers)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


LEASE: dict[str, Any] = {
    "lease_id": 1,
    "token": 1,
    "state": "ended",
    "reason": "failed",
    "exit_code": 1,
    "steps_done": 0,
    "steps_live": 0,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"exit_code": 2**63 + 3},
        {"exit_code": -(10**30)},
        {"lease_id": 2**53},
        {"started_s": 1e300},
        {"message": ["x"]},
        {"devices": ["x"] * 5000},
    ],
)
def test_a_figure_beyond_the_bounds_is_refused(
    daemon: Any, alpha: Any, changes: dict[str, Any]
) -> None:
    answer = alpha.post("/v1/agent/report", json=REPORT | {"leases": [LEASE | changes]})
    assert answer.status_code == 422
    assert next(iter(changes)) in answer.json()["detail"]
    assert daemon.service.reports == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"node": ' + b"[" * 1000 + b"]" * 1000 + b"}",
        b'{"node": "' + b"x" * 500_000 + b'"}',
        b'{"node": "\\ud800"}',
        b'{"node": "\xff"}',
        b'{"node": NaN}',
        b'{"node": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_strange_throughout_is_refused_in_few_words(alpha: Any, body: bytes) -> None:
    for path in ("/v1/agent/report", "/v1/agent/enrol"):
        answer = alpha.post(path, content=body)
        assert answer.status_code == 422, answer.text
        assert len(answer.content) < 2000


def test_a_lease_of_thousands_of_digits_does_not_exist(alpha: Any) -> None:
    for lease in ("9" * 5000, "-1", "1e3", "\u0663"):
        assert alpha.put(f"/v1/agent/logs/{lease}/out?offset=0").status_code == 404


def test_strange_headers_of_a_report_are_refused(alpha: Any) -> None:
    for headers in ({"X-Leasehold-Address": "a b"}, {"X-Leasehold-Agent": "<script>"}):
        answer = alpha.post("/v1/agent/report", json=REPORT, headers=headers)
        assert answer.status_code == 422


def test_output_is_appended_and_a_piece_that_does_not_follow_is_dropped(
    daemon: Any, alpha: Any
) -> None:
    job = daemon.caller("user").submit()
    lease = daemon.service.run(job).lease_id
    path = f"/v1/agent/logs/{lease}/out"
    assert alpha.put(f"{path}?offset=0", content=b"ab\0\xff").json() == {"next_offset": 4}
    assert alpha.put(f"{path}?offset=0", content=b"ab").json() == {"next_offset": 4}
    assert alpha.put(f"{path}?offset=9", content=b"x").json() == {"next_offset": 4}
    assert alpha.put("/v1/agent/logs/99/out?offset=0", content=b"x").status_code == 404
    assert alpha.put(f"/v1/agent/logs/{lease}/../out", content=b"x").status_code == 404
    assert alpha.put(f"/v1/agent/logs/{lease}/x", content=b"x").status_code == 404
    beta = daemon.caller("agent", subject="beta")
    assert beta.put(f"{path}?offset=4", content=b"x").status_code == 404, "not its lease"


def test_without_authentication_an_agent_names_its_node(serve: Any) -> None:
    daemon = serve(auth=False)
    client = daemon.client
    assert client.get("/v1/agent/desired").status_code == 401
    named = {"X-Leasehold-Node": "alpha"}
    assert client.get("/v1/agent/desired", headers=named).status_code == 200
    assert client.post("/v1/agent/report", json=REPORT, headers=named).status_code == 204
    strange = {"X-Leasehold-Node": "..%2Fetc"}
    assert client.get("/v1/agent/desired", headers=strange).status_code == 422
    with_token = daemon.caller("agent", subject="alpha")
    assert with_token.post("/v1/agent/report", json=REPORT).status_code == 204


def test_the_agents_own_link_is_understood(daemon: Any) -> None:
    admin = daemon.caller("admin")
    secret = admin.post("/v1/enrolments", json={"node": "alpha"}).json()["secret"]
    lease = daemon.service.run(daemon.caller("user").submit())
    transport = httpx.ASGITransport(daemon.app)
    servers = ("http://localhost",)

    async def scenario() -> tuple[Desired, int]:
        token = await enrol(servers=servers, node="alpha", secret=secret, transport=transport)
        link = HttpLink(
            servers=servers,
            node="alpha",
            token=lambda: token,
            address="10.0.0.7",
            version="1.0",
            transport=transport,
        )
        await link.report(report_from_dict(REPORT))
        following = await link.append_log(lease.lease_id, "out", offset=0, data=b"hello")
        assert await link.append_log(lease.lease_id, "out", offset=5, data=b"", end=True) == 5
        return await link.desired(after=(0, 0)), following

    desired, following = daemon.run(scenario())
    assert (desired.revision, following) == (1, 5)
    assert daemon.service.marks == {(lease.lease_id, "out"): True}
    assert daemon.service.reports == [(report_from_dict(REPORT), "10.0.0.7", "1.0")]


def test_a_piece_says_whether_more_may_follow_unless_its_agent_is_of_an_older_release(
    daemon: Any, alpha: Any
) -> None:
    lease = daemon.service.run(daemon.caller("user").submit())
    path = f"/v1/agent/logs/{lease.lease_id}/out"

    def put(offset: int, data: bytes, **headers: str) -> int:
        return int(alpha.put(f"{path}?offset={offset}", content=data, headers=headers).status_code)

    for offset, headers, mark in (
        (0, {}, None),
        (1, {"X-Leasehold-Stream": "open"}, False),
        (2, {"X-Leasehold-Stream": "end"}, True),
    ):
        assert put(offset, b"x", **headers) == 200
        assert daemon.service.marks[lease.lease_id, "out"] is mark
    assert put(3, b"x", **{"X-Leasehold-Stream": "over"}) == 422


@pytest.mark.parametrize("query", ["nodes=beta", "wait=3", "term=1&revision=1&wait_s=0&x=1"])
def test_parameters_that_nobody_knows_are_refused(alpha: Any, query: str) -> None:
    answer = alpha.get(f"/v1/agent/desired?{query}")
    assert answer.status_code == 422
    assert "unknown parameter" in answer.text
    assert alpha.post(f"/v1/agent/report?{query}", json=REPORT).status_code == 422


def test_who_shows_no_token_sends_no_more_than_a_secret(daemon: Any) -> None:
    body = {"node": "alpha", "secret": "x" * 70_000}
    answer = daemon.client.post("/v1/agent/enrol", json=body)
    assert answer.status_code == 413
    assert "without a token" in answer.json()["detail"]


def test_values_of_a_report_are_counted_before_they_are_made(daemon: Any) -> None:
    agent = daemon.caller("agent", subject="alpha")
    answer = agent.post("/v1/agent/report", content=b"[" + b"[]," * 1_000_000 + b"[]]")
    assert answer.status_code == 413
