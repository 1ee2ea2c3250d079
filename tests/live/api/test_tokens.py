"""Tokens and enrolments: made, used, expired, revoked, cached, never shown again."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from scheduler.errors import StoreError, StoreUnavailableError


def test_a_new_token_works_at_once_and_only_its_hash_is_kept(daemon: Any) -> None:
    admin = daemon.caller("admin", subject="root")
    body = {"subject": "ann", "role": "user", "projects": ["vision", "vision"], "ttl_s": 60}
    made = admin.post("/v1/tokens", json=body)
    assert made.status_code == 201
    token = made.json()["token"]
    assert token.startswith("lh_")
    assert len(token) >= 3 + 43, "32 random bytes"
    stored = daemon.service.store.token(hashlib.sha256(token.encode()).hexdigest())
    assert (stored.subject, stored.role, stored.projects) == ("ann", "user", ("vision",))
    who = daemon.bearer(token).get("/v1/whoami").json()
    assert who == {
        "subject": "ann",
        "role": "user",
        "projects": ["vision"],
        "token_id": made.json()["token_id"],
        "expires_s": daemon.clock() + 60,
    }
    listed = admin.get("/v1/tokens").text
    assert token not in listed
    assert stored.secret_hash not in listed
    lines = admin.get("/v1/events?kind=token_created").json()["events"]
    assert [(e["actor"], e["subject"]) for e in lines] == [("root", who["token_id"])]
    assert token not in str(lines)


def test_a_revoked_token_is_refused_at_once_and_again_when_revoked_twice(daemon: Any) -> None:
    admin = daemon.caller("admin")
    made = admin.post("/v1/tokens", json={"subject": "ann", "role": "viewer"}).json()
    ann = daemon.bearer(made["token"])
    assert ann.get("/v1/whoami").status_code == 200
    assert admin.delete(f"/v1/tokens/{made['token_id']}").status_code == 204
    assert ann.get("/v1/whoami").status_code == 401
    assert admin.delete(f"/v1/tokens/{made['token_id']}").status_code == 204
    assert admin.delete("/v1/tokens/never").status_code == 404
    kinds = [e["kind"] for e in admin.get("/v1/events").json()["events"]]
    assert kinds == ["token_created", "token_revoked", "token_revoked"]


def test_the_last_token_of_an_administrator_cannot_be_revoked(daemon: Any) -> None:
    root = daemon.caller("admin")

    def tokens() -> dict[str, str]:
        return {one["token_id"]: one["role"] for one in root.get("/v1/tokens").json()["tokens"]}

    def make(role: str, **more: object) -> str:
        asked = {"subject": role, "role": role} | more
        return str(root.post("/v1/tokens", json=asked).json()["token_id"])

    make("operator")
    (only,) = (name for name, role in tokens().items() if role == "admin")
    answer = root.delete(f"/v1/tokens/{only}")
    assert answer.status_code == 409
    assert f"token '{only}' is the only one of an administrator; make another" in answer.text
    other = make("admin")
    assert root.delete(f"/v1/tokens/{other}").status_code == 204
    assert root.delete(f"/v1/tokens/{other}").status_code == 204, "again"
    assert root.delete(f"/v1/tokens/{only}").status_code == 409
    make("admin", ttl_s=60)
    assert root.delete(f"/v1/tokens/{only}").status_code == 409, "the other one expires soon"
    make("admin", ttl_s=86_400)
    assert root.delete(f"/v1/tokens/{only}").status_code == 204


def test_what_another_process_revokes_or_makes_is_known_within_the_cache_time(
    serve: Any,
) -> None:
    daemon = serve(token_cache_s=3.0)
    ann = daemon.caller("viewer")
    assert ann.get("/v1/whoami").status_code == 200
    daemon.service.store.revoke_token("viewer-1", now_s=daemon.clock())
    assert ann.get("/v1/whoami").status_code == 200, "within the time of the cache"
    bob = daemon.caller("viewer")
    assert bob.get("/v1/whoami").status_code == 200, "a new one is looked up at once"
    daemon.clock.seconds += 3.0
    assert ann.get("/v1/whoami").status_code == 401
    assert bob.get("/v1/whoami").status_code == 200


def test_a_token_made_after_it_was_tried_is_known_within_the_cache_time(daemon: Any) -> None:
    from api.auth.tokens import hash_secret
    from scheduler.store.rows import TokenRow

    early = daemon.bearer("lh_early")
    assert early.get("/v1/whoami").status_code == 401
    row = TokenRow(
        token_id="t", secret_hash=hash_secret("lh_early"), subject="x", role="viewer", created_s=0
    )
    daemon.service.store.add_token(row)
    daemon.clock.seconds += 3.0
    assert early.get("/v1/whoami").status_code == 200


def test_an_expired_token_is_refused_to_the_second(daemon: Any) -> None:
    ann = daemon.caller("viewer", expires_s=daemon.clock() + 1)
    assert ann.get("/v1/whoami").status_code == 200
    daemon.clock.seconds += 1
    assert ann.get("/v1/whoami").status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer lh_wrong",
        "Bearer " + "x" * 300,
        "Bearer \xff",
    ],
)
def test_anything_else_than_a_known_token_is_refused(daemon: Any, header: str) -> None:
    headers = {"Authorization": header.encode("latin-1")}
    answer = daemon.client.get("/v1/jobs", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="leasehold"'
    assert answer.json()["type"] == "urn:leasehold:problem:unauthenticated"


def test_known_tokens_stay_good_for_a_while_when_the_store_is_away(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = serve(token_grace_s=60.0)
    ann = daemon.caller("viewer")
    assert ann.get("/v1/whoami").status_code == 200
    store = daemon.service.store

    def away(*_: object) -> None:
        raise StoreUnavailableError("password=hunter2 no route to host")

    monkeypatch.setattr(store, "tokens", away)
    monkeypatch.setattr(store, "token", away)
    daemon.clock.seconds += 30
    assert ann.get("/v1/whoami").status_code == 200
    daemon.clock.seconds += 31
    answer = ann.get("/v1/whoami")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    assert "hunter2" not in answer.text


def test_times_of_last_use_are_written_together_and_now_and_then(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    daemon = serve(token_touch_s=0.5)
    ann = daemon.caller("viewer")
    written: list[dict[str, float]] = []
    monkeypatch.setattr(daemon.service.store, "touch_tokens", written.append)
    for _ in range(5):
        ann.get("/v1/whoami")
    daemon.run(asyncio.sleep(1.0))
    assert written == [{"viewer-1": daemon.clock()}]

    def refuse(_: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(daemon.service.store, "touch_tokens", refuse)
    ann.get("/v1/whoami")
    daemon.run(asyncio.sleep(1.0))
    assert ann.get("/v1/whoami").status_code == 200, "that it could not be written harms nobody"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"subject": "ann"},
        {"subject": "a b", "role": "viewer"},
        {"subject": "ann", "role": "king"},
        {"subject": "ann", "role": "viewer", "ttl_s": 0},
        {"subject": "ann", "role": "viewer", "projects": ["../x"]},
        {"subject": "ann", "role": "agent", "projects": ["vision"]},
        {"subject": "ann", "role": "operator", "projects": ["vision"]},
        {"subject": "ann", "role": "admin", "projects": ["vision"]},
        {"subject": "ann", "role": "viewer", "token_id": "mine"},
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(daemon: Any, body: dict[str, Any]) -> None:
    assert daemon.caller("admin").post("/v1/tokens", json=body).status_code == 422


def test_an_enrolment_is_good_once_for_its_node_and_time(daemon: Any) -> None:
    admin = daemon.caller("admin")

    def enrol(node: str, secret: str) -> Any:
        return daemon.client.post("/v1/agent/enrol", json={"node": node, "secret": secret})

    made = admin.post("/v1/enrolments", json={"node": "alpha", "ttl_s": 60})
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert secret.startswith("lhe_")
    assert enrol("beta", secret).status_code == 403, "another node's"
    token = enrol("alpha", secret).json()["token"]
    who = daemon.bearer(token).get("/v1/whoami").json()
    assert (who["subject"], who["role"]) == ("alpha", "agent")
    assert enrol("alpha", secret).status_code == 403, "used"
    late = admin.post("/v1/enrolments", json={"ttl_s": 60}).json()["secret"]
    daemon.clock.seconds += 60
    assert enrol("gamma", late).status_code == 403, "expired"
    again = admin.post("/v1/enrolments", json={"node": "alpha"}).json()["secret"]
    assert enrol("alpha", again).status_code == 200
    first, second = admin.get("/v1/events?kind=agent_enrolled&subject=alpha").json()["events"]
    assert (first["data"]["anew"], second["data"]["anew"]) == (False, True)
    assert second["data"]["address"]
    text = str(admin.get("/v1/events").json())
    assert secret not in text
    assert token not in text


def test_a_pods_token_lets_in_its_node_alone_and_ends_what_the_pod_before_it_had(
    serve: Any,
) -> None:
    async def node_of(token: str) -> str | None:
        if token == "away":
            raise OSError("the API server answers 403 Forbidden")
        return {"pod-1": "alpha", "pod-2": "alpha", "pod-3": "beta"}.get(token)

    daemon = serve(node_of=node_of)

    def enrol(node: str, secret: str) -> Any:
        return daemon.client.post("/v1/agent/enrol", json={"node": node, "secret": secret})

    def status(token: str) -> int:
        return int(daemon.bearer(token).get("/v1/whoami").status_code)

    first, other = enrol("alpha", "pod-1").json(), enrol("beta", "pod-3").json()
    who = daemon.bearer(first["token"]).get("/v1/whoami").json()
    assert (who["subject"], who["role"]) == ("alpha", "agent")
    assert enrol("beta", "pod-1").status_code == 403, "another node's"
    assert enrol("alpha", "stranger").status_code == 403
    assert enrol("alpha", "away").status_code == 503
    assert status(first["token"]) == 200, "a refusal changes nothing"
    second = enrol("alpha", "pod-2").json()
    assert [status(made["token"]) for made in (first, second, other)] == [401, 200, 200]
    # Secrets of our own are good as ever, and a node's other tokens are left alone.
    admin = daemon.caller("admin")
    secret = admin.post("/v1/enrolments", json={"node": "alpha"}).json()["secret"]
    own = enrol("alpha", secret).json()["token"]
    enrol("alpha", "pod-1")
    assert status(own) == 200


def test_a_pods_token_lets_nobody_in_where_nobody_vouches_for_it(daemon: Any) -> None:
    body = {"node": "alpha", "secret": "a.b.c"}
    assert daemon.client.post("/v1/agent/enrol", json=body).status_code == 403


@pytest.mark.parametrize(
    "body",
    [{}, {"node": "alpha"}, {"node": "../a", "secret": "x"}, {"node": "a", "secret": 1}, [], "x"],
)
def test_an_enrolment_that_makes_no_sense_is_refused(daemon: Any, body: object) -> None:
    assert daemon.client.post("/v1/agent/enrol", json=body).status_code == 422


def test_many_callers_at_once_cost_one_reading_of_the_tokens(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    callers = [daemon.caller("viewer") for _ in range(20)]
    readings: list[None] = []
    tokens = daemon.service.store.tokens

    def counted() -> Any:
        readings.append(None)
        return tokens()

    monkeypatch.setattr(daemon.service.store, "tokens", counted)

    async def scenario() -> list[int]:
        asked = [caller._request("GET", "/v1/whoami") for caller in callers]
        return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert daemon.run(scenario()) == [200] * 20
    assert len(readings) == 1


def test_guessing_fills_no_memory(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import api.auth.tokens

    monkeypatch.setattr(api.auth.tokens, "MOST_UNKNOWN", 2)
    for guess in range(5):
        assert daemon.bearer(f"lh_guess{guess}").get("/v1/whoami").status_code == 401
    assert len(daemon.app.state.context.authenticator._unknown) == 2
