"""The edge: ids, logs, sizes, rates, and what errors look like from outside."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from api import routing
from api.context import LARGE_BODY
from api.limits import MOST_BUCKETS, Buckets
from api.redaction import RedactingFilter, redact
from api.routing import read_json
from api.settings import RateLimit
from scheduler.errors import (
    AdmissionError,
    ConflictError,
    InputError,
    InvariantError,
    NotFoundError,
    NotLeadingError,
    OutcomeUnknownError,
    ParameterError,
    StaleLeaderError,
    StartingError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UnknownPolicyError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

JOB = {"name": "train", "command": ["python"]}


def test_large_bodies_are_decoded_beside_the_event_loop(daemon, monkeypatch):
    places = []

    def watched(body):
        places.append(threading.get_ident())
        return read_json(body)

    monkeypatch.setattr(routing, "read_json", watched)
    for fields in ({}, {"env": {"TEXT": "x" * (LARGE_BODY - 1)}}, {}):
        daemon.caller("user").submit(**fields)
    loop, beside, again = places
    assert loop == again != beside


@pytest.mark.parametrize(
    ("error", "status", "code", "told"),
    [
        (NotFoundError("no job 'x'"), 404, "not_found", True),
        (ConflictError("taken"), 409, "conflict", True),
        (InputError("weight is -1"), 422, "invalid", True),
        (ParameterError("alpha is -1"), 422, "invalid", True),
        (UnknownPolicyError("no policy 'x'"), 422, "invalid", True),
        (AdmissionError("never fits"), 422, "refused", True),
        (NotLeadingError(), 503, "not_leading", True),
        (StartingError("starting"), 503, "starting", True),
        (StoreUnavailableError("password=hunter2"), 503, "unavailable", False),
        (StoreFullError("password=hunter2"), 503, "unavailable", False),
        (OutcomeUnknownError(StoreFullError("password=hunter2")), 503, "unavailable", False),
        (StaleLeaderError("token 7 is stale"), 503, "unavailable", False),
        (StoreError("constraint xyz"), 500, "internal", False),
        (InvariantError("busy twice"), 500, "internal", False),
        (ZeroDivisionError("a / 0"), 500, "internal", False),
    ],
)
def test_each_error_of_the_daemon_has_its_status(
    daemon: Any, error: Exception, status: int, code: str, told: bool
) -> None:
    daemon.service.failure = error
    answer = daemon.caller("user").post("/v1/jobs", json=JOB)
    problem = answer.json()
    assert answer.status_code == problem["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["type"] == f"urn:leasehold:problem:{code}"
    assert problem["instance"] == "/v1/jobs"
    assert (str(error) in problem["detail"]) is told
    assert ("retry-after" in answer.headers) is (status == 503)


def test_a_full_disk_is_named_and_not_taken_for_a_standby(daemon: Any) -> None:
    daemon.service.failure = StoreFullError("sqlite: database or disk is full")
    problem = daemon.caller("user").post("/v1/jobs", json=JOB).json()
    assert "disk is full" in problem["detail"]
    assert "standby" not in problem["detail"]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (StoreFullError("hunter2"), "disk is full"),
        (StoreUnavailableError("hunter2"), "cannot be used"),
    ],
)
def test_what_may_be_stored_yet_is_not_called_refused(
    daemon: Any, failure: StoreUnavailableError, words: str
) -> None:
    daemon.service.failure = OutcomeUnknownError(failure)
    problem = daemon.caller("user").post("/v1/jobs", json=JOB).json()
    assert words in problem["detail"]
    assert "not known yet" in problem["detail"]
    assert "nothing was done" not in problem["detail"]
    assert "hunter2" not in problem["detail"]


@pytest.mark.parametrize(
    ("leader", "origin"),
    [("http://10.0.0.2:8642", "http://10.0.0.2:8642"), ("10.0.0.2:8642/", "http://10.0.0.2:8642")],
)
def test_a_standby_sends_writers_to_the_leader(daemon: Any, leader: str, origin: str) -> None:
    daemon.service.failure = NotLeadingError(leader)
    user = daemon.caller("user")
    answer = user.post("/v1/jobs?dry_run=false", json=JOB)
    assert answer.status_code == 307
    assert answer.headers["location"] == f"{origin}/v1/jobs?dry_run=false"
    assert answer.json()["type"] == "urn:leasehold:problem:not_leading"
    assert user.get("/v1/jobs").status_code == 200, "reading goes on"


def test_unknown_paths_and_methods_are_problems_too(daemon: Any) -> None:
    viewer = daemon.caller("viewer")
    nowhere = viewer.get("/v1/bogus")
    assert (nowhere.status_code, nowhere.json()["title"]) == (404, "Not Found")
    wrong = viewer.delete("/v1/jobs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, PATCH, POST")
    assert viewer.get("/v1/jobs/").status_code == 404, "no redirects between spellings"
    assert daemon.client.get("/v1/bogus").status_code == 401, "nothing is told without a token"


def test_bodies_above_the_limit_are_refused_announced_or_not(serve: Any) -> None:
    daemon = serve(max_body_bytes=1000)
    user, agent = daemon.caller("user"), daemon.caller("agent", subject="alpha")
    read = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(50):
            read += 100
            yield b" " * 100

    headers = {"Content-Type": "application/json"}
    announced = user.post("/v1/jobs", content=b" " * 1001, headers=headers)
    in_pieces = user.post("/v1/jobs", content=pieces(), headers=headers)
    for answer in (announced, in_pieces, agent.put("/v1/agent/logs/1/out", content=b"x" * 1001)):
        assert answer.status_code == 413
        assert "1000 bytes" in answer.json()["detail"]
    assert read <= 1200, "it is refused while it comes"
    assert user.post("/v1/jobs", json=JOB).status_code == 201
    lying = user.post("/v1/jobs", content=b"{}", headers=headers | {"Content-Length": "9" * 30})
    assert lying.status_code == 413


def test_too_many_requests_are_told_when_to_come_back(serve: Any) -> None:
    daemon = serve(
        rate=RateLimit(per_s=2.0, burst=3), rate_without_token=RateLimit(per_s=0.1, burst=2)
    )
    ann, bob = daemon.caller("viewer"), daemon.caller("viewer")
    assert [ann.get("/v1/whoami").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert bob.get("/v1/whoami").status_code == 200, "each token has its own"
    daemon.clock.seconds += 0.5
    assert [ann.get("/v1/whoami").status_code for _ in range(2)] == [200, 429]
    assert [daemon.client.get("/v1/jobs").status_code for _ in range(3)] == [401, 401, 429]
    late = daemon.client.get("/healthz")
    assert (late.status_code, late.headers["retry-after"]) == (429, "10")
    other = daemon.client
    other.address = "10.9.9.9"
    assert other.get("/healthz").status_code == 200, "each address has its own"


def test_strangers_tokens_are_looked_up_only_within_the_limit_of_their_address(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = serve(rate_without_token=RateLimit(per_s=0.1, burst=5))
    ann = daemon.caller("viewer")
    assert ann.get("/v1/whoami").status_code == 200
    asked: list[str] = []
    store, real = daemon.service.store, daemon.service.store.token
    monkeypatch.setattr(store, "token", lambda digest: asked.append(digest) or real(digest))
    statuses = [daemon.bearer(f"lh_{n:043}").get("/v1/jobs").status_code for n in range(50)]
    assert statuses == [401] * 5 + [429] * 45
    assert len(asked) == 5
    assert ann.get("/v1/whoami").status_code == 200, "known tokens are not looked up"
    other = daemon.bearer("lh_" + "x" * 43)
    other.address = "10.9.9.9"
    assert other.get("/v1/jobs").status_code == 401, "each address has its own"
    daemon.clock.seconds += 10.0
    assert daemon.bearer("lh_" + "y" * 43).get("/v1/jobs").status_code == 401


def test_agents_are_not_limited_but_enrolment_is(serve: Any) -> None:
    limit = RateLimit(per_s=0.1, burst=2)
    daemon = serve(rate=limit, rate_without_token=limit)
    agent = daemon.caller("agent", subject="alpha")
    assert {agent.get("/v1/agent/desired").status_code for _ in range(10)} == {200}
    body = {"node": "alpha", "secret": "guess"}
    statuses = [daemon.client.post("/v1/agent/enrol", json=body).status_code for _ in range(3)]
    assert statuses == [403, 403, 429]


def test_a_bucket_that_was_never_refused_fills_up_to_its_burst_only() -> None:
    now = [0.0]
    buckets, limit = Buckets(lambda: now[0]), RateLimit(per_s=1.0, burst=2)
    assert [buckets.take("a", limit) for _ in range(3)] == [0.0, 0.0, 1.0]
    now[0] = 0.75
    assert buckets.take("a", limit) == 0.25
    now[0] = 1e6
    assert [buckets.take("a", limit) for _ in range(3)] == [0.0, 0.0, 1.0]
    for i in range(MOST_BUCKETS + 10):
        buckets.take(f"caller {i}", limit)
    assert len(buckets._left) == MOST_BUCKETS


def test_a_request_keeps_its_id_if_it_is_sound(daemon: Any) -> None:
    given = daemon.client.get("/healthz", headers={"X-Request-ID": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    for bad in ("a b", "x" * 65, 'a"b'):
        own = daemon.client.get("/healthz", headers={"X-Request-ID": bad}).headers["x-request-id"]
        assert len(own) == 16
    assert given.headers["x-leasehold-version"] == "0.0.0"


def test_the_access_log_is_structured_and_tells_no_query(
    daemon: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leasehold.access")
    viewer = daemon.caller("viewer", subject="ann")
    viewer.get("/v1/jobs?owner=secret-owner", headers={"X-Request-ID": "r1"})
    viewer.get("/v1/jobs/%0aline%22quote")
    first, second = (r for r in caplog.records if r.name == "leasehold.access")
    assert "secret-owner" not in first.getMessage()
    fields = first.request
    assert (fields["method"], fields["path"], fields["status"]) == ("GET", "/v1/jobs", 200)
    assert (fields["subject"], fields["request_id"]) == ("ann", "r1")
    assert 'method="GET" path="/v1/jobs" status=200' in first.getMessage()
    assert "\n" not in second.getMessage(), "a path cannot begin a line of its own"


def test_secrets_are_never_logged(daemon: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "httpx")  # the test's own client
    caplog.set_level(logging.DEBUG)
    secret = daemon.secret("admin")
    admin = daemon.bearer(secret)
    made = admin.post("/v1/tokens", json={"subject": "ann", "role": "viewer"}).json()["token"]
    enrolment = admin.post("/v1/enrolments", json={}).json()["secret"]
    daemon.client.post("/v1/agent/enrol", json={"node": "../", "secret": enrolment})
    admin.get(f"/v1/jobs/{made}")
    admin.get(f"/v1/jobs?token={made}&owner={secret}")
    daemon.service.failure = RuntimeError(f"failed with Authorization: Bearer {secret}")
    answer = admin.post("/v1/jobs", json=JOB | {"env": {"TOKEN": made}})
    assert answer.status_code == 500
    for hidden in (secret, made, enrolment):
        assert hidden not in caplog.text
    assert "lh_***" in caplog.text
    bad = daemon.client.post("/v1/agent/enrol", json={"node": "a/b", "secret": enrolment})
    assert enrolment not in bad.text


def test_redaction_blots_out_what_looks_like_a_secret_and_nothing_else() -> None:
    token = "lh_" + "a1-_" * 10
    assert redact(f"GET /x?t={token}&u=1") == "GET /x?t=lh_***&u=1"
    assert redact("lhe_abcdefghijk used") == "lhe_*** used"
    assert redact("authorization: bearer abc.def, next") == "authorization: bearer ***, next"
    advice = "send 'Authorization: Bearer TOKEN' with one that is valid"
    assert redact(advice) == advice
    assert redact("Bearer TOKENabc, Bearer TOKEN-1") == "Bearer ***, Bearer ***"
    assert redact("a bear and length_of_things") == "a bear and length_of_things"


def test_the_filter_cleans_messages_arguments_and_tracebacks() -> None:
    token = "lh_" + "x" * 43
    try:
        int(token)
    except ValueError as error:
        record = logging.LogRecord(
            "a", logging.ERROR, "f", 1, "got %s", (token,), (type(error), error, None)
        )
    assert RedactingFilter().filter(record)
    text = logging.Formatter().format(record)
    assert token not in text
    assert text.startswith("got lh_***")
    assert "literal for int() with base 10: 'lh_***'" in text


def test_a_failure_in_the_middle_of_an_answer_ends_it(
    daemon: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = daemon.caller("user").submit()
    viewer = daemon.caller("viewer")

    async def broken(*_: object, **__: object) -> AsyncIterator[Any]:
        from scheduler.logs.output import LogChunk

        yield LogChunk(stream="out", node="alpha", attempt=1, offset=0, data=b"one\n")
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(daemon.service, "follow_log", broken)

    async def scenario() -> tuple[int, bytes]:
        stream = daemon.stream(f"/v1/jobs/{job}/log?follow=true", **viewer.headers)
        return stream.status, await stream.rest()

    assert daemon.run(scenario())[1] == b"one\n"
    assert "disk on fire" in caplog.text


def test_other_protocols_than_http_are_left_to_the_server(daemon: Any) -> None:
    sent: list[dict[str, Any]] = []

    async def scenario() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "websocket", "path": "/v1/events", "headers": [], "query_string": b"",
            "root_path": "", "scheme": "ws", "subprotocols": [],
        }  # fmt: skip
        await daemon.app(scope, receive, send)

    daemon.run(scenario())
    assert sent[0]["type"] == "websocket.close"


def test_answers_are_not_to_be_kept_nor_guessed_at(daemon: Any) -> None:
    headers = daemon.client.get("/healthz").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert json.loads(daemon.client.get("/v1/openapi.json").text)["openapi"].startswith("3.")


def test_what_machines_ask_all_the_time_is_logged_for_debugging_only(
    daemon: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leasehold.access")
    agent = daemon.caller("agent", subject="alpha")
    daemon.client.get("/healthz")
    agent.get("/v1/agent/desired")
    assert [r for r in caplog.records if r.name == "leasehold.access"] == []
    agent.get("/v1/agent/desired?term=x")
    daemon.client.get("/metrics")
    logged = [r.request["status"] for r in caplog.records if r.name == "leasehold.access"]
    assert logged == [422, 401], "what goes wrong is told"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8642", 201),
        ("http://[::1]:8642", 201),
        ("https://evil.example", 403),
        ("http://evil.example:8642", 403),
        ("http://127.0.0.1.evil.example", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
def test_pages_of_strangers_cannot_use_a_scheduler_without_tokens(
    serve: Any, origin: str, status: int
) -> None:
    headers = {"Origin": origin}
    assert (
        serve(auth=False).client.post("/v1/jobs", json=JOB, headers=headers).status_code == status
    )
    assert serve().caller("user").post("/v1/jobs", json=JOB, headers=headers).status_code == 201


def test_a_client_that_goes_away_while_it_sends_is_no_error(
    daemon: Any, caplog: pytest.LogCaptureFixture
) -> None:
    secret = daemon.secret("agent", subject="alpha")
    sent: list[object] = []

    async def scenario() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: object) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/v1/agent/report", "query_string": b"",
            "headers": [(b"authorization", f"Bearer {secret}".encode())], "root_path": "",
            "scheme": "http", "client": None, "http_version": "1.1",
        }  # fmt: skip
        await daemon.app(scope, receive, send)

    daemon.run(scenario())
    assert sent == []
    assert "failed" not in caplog.text


@pytest.mark.parametrize("depth", [65, 900, 5000])
@pytest.mark.parametrize("method", ["post", "patch"])
def test_a_body_that_is_nested_deeply_is_refused(daemon: Any, method: str, depth: int) -> None:
    body = b'{"a":' * depth + b"1" + b"}" * depth
    headers = {"Content-Type": "application/json"}
    answer = getattr(daemon.caller("user"), method)("/v1/jobs", content=body, headers=headers)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_lone_surrogate_is_refused(daemon: Any) -> None:
    body = b'{"name": "\\ud800", "command": ["x"]}'
    headers = {"Content-Type": "application/json"}
    answer = daemon.caller("user").post("/v1/jobs", content=body, headers=headers)
    assert answer.status_code == 422
    assert "surrogate" in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8642", 200),
        ("localhost.", 200),
        ("127.0.0.1:8642", 200),
        ("[::1]:8642", 200),
        ("login.example", 200),
        ("rebound.evil.example", 421),
        ("rebound.evil.example:8642", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("[", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/healthz", "/v1/nowhere"])
def test_a_scheduler_without_tokens_answers_under_its_own_names_only(
    serve: Any, host: str, status: int, path: str
) -> None:
    client = serve(auth=False, hosts=frozenset({"login.example"})).client
    answer = client.get(path, headers={"Host": host})
    if status == 421:
        assert answer.status_code == 421
        assert answer.json()["type"] == "urn:leasehold:problem:misdirected"
        assert "server.hosts" in answer.json()["detail"]
    else:
        assert answer.status_code == (404 if path == "/v1/nowhere" else 200)


def test_with_tokens_every_name_will_do(serve: Any) -> None:
    answer = serve().caller("viewer").get("/v1/jobs", headers={"Host": "anything.example"})
    assert answer.status_code == 200
