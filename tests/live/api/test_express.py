"""The short way for agents: the same answers as on the ordinary one, and nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from api.settings import RateLimit
from scheduler.errors import NotLeadingError
from scheduler.protocol.desired import Desired, DesiredLease, desired_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

DESIRED, REPORT = "/v1/agent/desired", "/v1/agent/report"
BODY: dict[str, Any] = {
    "node": "alpha",
    "incarnation": 1.0,
    "sequence": 1,
    "term": 1,
    "revision": 1,
    "workers": [{"index": 0, "worker_type": "fast", "problem": ""}],
    "leases": [],
}


@pytest.fixture
def alpha(daemon: Any) -> Any:
    """A known agent: the first request of all reads the tokens."""
    caller = daemon.caller("agent", subject="alpha")
    assert caller.get("/v1/whoami").status_code == 200
    return caller


@pytest.fixture
def ordinary(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths of requests that went the ordinary way."""
    paths: list[str] = []
    way = daemon.app.express._app

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await way(scope, receive, send)

    monkeypatch.setattr(daemon.app.express, "_app", noting)
    return paths


def test_the_usual_requests_of_an_agent_take_the_short_way(
    daemon: Any, alpha: Any, ordinary: list[str]
) -> None:
    lease = DesiredLease(
        lease_id=1, attempt=1, token=1, job_id="a", command=("x",), workers=(0,), remaining_s=9.0
    )
    daemon.service.wanted["alpha"] = Desired(term=2, revision=7, leases=(lease,))
    answer = alpha.get(f"{DESIRED}?term=2&revision=6&wait_s=30")
    assert desired_from_dict(answer.json()) == daemon.service.wanted["alpha"]
    headers = {"X-Leasehold-Address": "10.0.0.7", "X-Leasehold-Agent": "1.2.0"}
    assert alpha.post(REPORT, json=BODY, headers=headers).status_code == 204
    ((report, address, version),) = daemon.service.reports
    assert (report.node, address, version) == ("alpha", "10.0.0.7", "1.2.0")
    assert ordinary == []


def test_answers_have_the_same_headers_on_both_ways(
    daemon: Any, alpha: Any, ordinary: list[str]
) -> None:
    short = alpha.get(f"{DESIRED}?wait_s=0")
    daemon.app.state.context.authenticator.forget()
    long = alpha.get(f"{DESIRED}?wait_s=0")
    assert ordinary == [DESIRED]
    assert short.json() == long.json()
    own = "x-request-id"
    assert {k: v for k, v in short.headers.items() if k != own} == {
        k: v for k, v in long.headers.items() if k != own
    }
    ids = {alpha.get(f"{DESIRED}?wait_s=0").headers[own] for _ in range(3)}
    assert len(ids | {short.headers[own]}) == 4
    given = alpha.get(f"{DESIRED}?wait_s=0", headers={"X-Request-Id": "my-own"})
    assert given.headers[own] == "my-own"


def test_a_token_that_is_revoked_or_over_is_not_remembered(
    daemon: Any, alpha: Any, ordinary: list[str]
) -> None:
    admin = daemon.caller("admin")
    (own,) = (t for t in admin.get("/v1/tokens").json()["tokens"] if t["subject"] == "alpha")
    assert admin.delete(f"/v1/tokens/{own['token_id']}").status_code == 204
    ordinary.clear()
    assert alpha.get(f"{DESIRED}?wait_s=0").status_code == 401
    brief = daemon.caller("agent", subject="beta", expires_s=daemon.clock() + 1.0)
    assert brief.get(f"{DESIRED}?wait_s=0").status_code == 200
    daemon.clock.seconds += 1.5
    assert brief.get(f"{DESIRED}?wait_s=0").status_code == 401
    assert DESIRED in ordinary


@pytest.mark.parametrize("role", ["viewer", "user", "operator", "admin"])
def test_nobody_but_agents_takes_it(daemon: Any, ordinary: list[str], role: str) -> None:
    caller = daemon.caller(role)
    assert caller.get("/v1/whoami").status_code == 200
    ordinary.clear()
    assert caller.get(f"{DESIRED}?wait_s=0").status_code == 403
    assert caller.post(REPORT, json=BODY).status_code == 403
    assert ordinary == [DESIRED, REPORT]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", f"{DESIRED}?term=1&term=2&wait_s=0", b"", {}, 200),
        ("GET", f"{DESIRED}?term=x", b"", {}, 422),
        ("GET", f"{DESIRED}?revision=1.5", b"", {}, 422),
        ("GET", f"{DESIRED}?wait_s=3601", b"", {}, 422),
        ("POST", DESIRED, b"", {}, 405),
        ("POST", REPORT, b"{", {}, 422),
        ("POST", REPORT, b'{"node": "alpha"}', {}, 422),
        ("POST", REPORT, b"{}", {"X-Leasehold-Address": "a b"}, 422),
        ("POST", REPORT, b"x" * 3000, {}, 413),
    ],
)
def test_what_is_not_usual_is_answered_on_the_ordinary_way(  # noqa: PLR0917
    serve: Any, method: str, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    alpha = serve(max_body_bytes=2000).caller("agent", subject="alpha")
    alpha.get("/v1/whoami")
    answer = alpha.request(method, path, content=body, headers=headers)
    assert answer.status_code == status, answer.text


def test_a_body_that_comes_in_pieces_is_limited_and_handed_on_whole(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = serve(max_body_bytes=2000)
    alpha = daemon.caller("agent", subject="alpha")
    alpha.get("/v1/whoami")

    async def pieces(count: int) -> Any:
        for _ in range(count):
            await asyncio.sleep(0)
            yield b"[" * 500

    assert alpha.post(REPORT, content=pieces(5)).status_code == 413
    assert alpha.post(REPORT, content=pieces(3)).status_code == 422


def test_a_report_of_another_node_and_a_standby_are_answered_as_before(
    daemon: Any, alpha: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alpha.post(REPORT, json=BODY | {"node": "beta"}).status_code == 403

    async def standby(*_: object, **__: object) -> None:
        raise NotLeadingError("http://other:1")

    monkeypatch.setattr(daemon.service, "report", standby)
    monkeypatch.setattr(daemon.service, "desired", standby)
    for answer in (alpha.post(REPORT, json=BODY), alpha.get(f"{DESIRED}?wait_s=0")):
        assert answer.status_code == 307
        assert answer.headers["location"].startswith("http://other:1/v1/agent/")


def test_every_request_is_in_the_access_log_where_that_is_asked_for(
    alpha: Any, ordinary: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "leasehold.access"):
        alpha.get(f"{DESIRED}?wait_s=0")
    assert ordinary == [DESIRED]
    assert f'path="{DESIRED}"' in caplog.text


def test_without_tokens_everybody_goes_the_ordinary_way(serve: Any) -> None:
    daemon = serve(auth=False)
    answer = daemon.client.get(f"{DESIRED}?wait_s=0", headers={"X-Leasehold-Node": "alpha"})
    assert answer.status_code == 200


def test_large_reports_of_one_node_are_slowed_for_that_node_alone(daemon: Any, alpha: Any) -> None:
    beta = daemon.caller("agent", subject="beta")
    large = json.dumps(BODY).encode() + b" " * 3_900_000

    def send() -> httpx.Response:
        return alpha.post(REPORT, content=large, headers={"Content-Type": "application/json"})

    assert [send().status_code for _ in range(4)] == [204] * 4
    refused = send()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) <= 2
    assert refused.json()["detail"].startswith("more than 2 MB of reports a second; ")
    assert len(daemon.service.reports) == 4
    assert beta.post(REPORT, json=BODY | {"node": "beta"}).status_code == 204
    assert alpha.get(f"{DESIRED}?wait_s=0").status_code == 200, "questions are counted apart"


def test_requests_of_one_node_are_limited_for_that_node_alone(
    daemon: Any, alpha: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = RateLimit(per_s=0.001, burst=5)
    for module in ("api.limits", "api.agent_fast_path"):
        monkeypatch.setattr(f"{module}.NODE_REQUESTS", few)
    beta = daemon.caller("agent", subject="beta")
    codes = [alpha.get(f"{DESIRED}?wait_s=0").status_code for _ in range(8)]
    assert set(codes[:3]) == {200}
    assert set(codes[5:]) == {429}
    assert alpha.post("/v1/agent/leases/1/out?offset=0", content=b"x").status_code == 429
    assert beta.get(f"{DESIRED}?wait_s=0").status_code == 200
    user = daemon.caller("user")
    assert user.get("/v1/jobs").status_code == 200
