"""Agents' tokens: workers that an enrolment approves, bound inventories, and renewals."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from httpx import ASGITransport

from agent.link.http_link import HttpLink
from api.agent_tokens import LEAST_BETWEEN_S, REMEMBERED_S, UP_PREFIX, tell_reuses
from api.auth.tokens import hash_secret, new_secret
from leasehold.daemon.secrets.agent_token import LEAST_S, MOST_S, AgentToken
from scheduler.store.queries import HistoryQuery
from scheduler.store.rows import TokenRow

DAY_S = 86_400.0
REPORT: dict[str, Any] = {
    "node": "alpha",
    "incarnation": 1.0,
    "sequence": 1,
    "term": 1,
    "revision": 1,
    "workers": [{"index": 0, "worker_type": "v100", "problem": ""}],
    "leases": [],
}


def enrolment(daemon: Any, **fields: Any) -> str:
    made = daemon.caller("admin").post("/v1/enrolments", json=fields)
    assert made.status_code == 201, made.text
    return str(made.json()["secret"])


def enrol(daemon: Any, secret: str, node: str = "alpha") -> Any:
    return daemon.client.post("/v1/agent/enrol", json={"node": node, "secret": secret})


def agent(daemon: Any, token_id: str = "t-1", **values: Any) -> Any:
    secret = new_secret()
    row = TokenRow(
        token_id=token_id,
        secret_hash=hash_secret(secret),
        subject="alpha",
        role="agent",
        created_s=daemon.clock(),
    )
    daemon.service.store.add_token(dataclasses.replace(row, **values))
    return daemon.bearer(secret)


def renew(caller: Any) -> dict[str, Any]:
    answer = caller.post("/v1/agent/token")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_what_an_enrolment_approves_is_told_to_the_scheduler(daemon: Any) -> None:
    secret = enrolment(daemon, node="alpha", workers={"v100": 4})
    assert enrol(daemon, secret).status_code == 200
    assert daemon.service.approved == {"alpha": {"v100": 4}}
    assert enrol(daemon, enrolment(daemon, node="beta"), "beta").status_code == 200
    assert "beta" not in daemon.service.approved, "what it reports first counts"


@pytest.mark.parametrize("workers", [{"v100": -1}, {"v100": 5000}, {"": 1}, {"v100": 1.5}, [], "x"])
def test_workers_that_cannot_be_are_refused(daemon: Any, workers: Any) -> None:
    admin = daemon.caller("admin")
    assert admin.post("/v1/enrolments", json={"workers": workers}).status_code == 422
    assert admin.put("/v1/nodes/alpha/workers", json={"workers": workers}).status_code == 422


def test_an_operator_approves_workers_of_a_node_that_is_known(daemon: Any) -> None:
    body = {"workers": {"v100": 2}}
    assert daemon.caller("user").put("/v1/nodes/alpha/workers", json=body).status_code == 403
    operator = daemon.caller("operator")
    answer = operator.put("/v1/nodes/alpha/workers", json=body)
    assert (answer.status_code, answer.json()["approved"]) == (200, {"v100": 2})
    assert operator.put("/v1/nodes/nobody/workers", json=body).status_code == 404


def test_a_secret_for_any_node_makes_nobody_a_node_that_has_a_token(daemon: Any) -> None:
    secret = enrolment(daemon)
    agent(daemon)
    answer = enrol(daemon, secret)
    assert answer.status_code == 403
    assert "has a token already" in answer.json()["detail"]
    assert enrol(daemon, enrolment(daemon, node="alpha")).status_code == 200
    assert enrol(daemon, secret, "beta").status_code == 200, "it was not used up"


def test_a_standby_sends_who_enrols_to_the_leader_with_the_secret_unused(daemon: Any) -> None:
    secret = enrolment(daemon, node="alpha")
    daemon.service.leading = False
    assert enrol(daemon, secret).status_code == 503
    daemon.service.leading = True
    assert enrol(daemon, secret).status_code == 200


@pytest.mark.parametrize(
    ("token_id", "bound"), [("t-1", True), (f"{UP_PREFIX}1", False), ("k8s-t-1", False)]
)
def test_whose_first_report_binds(daemon: Any, token_id: str, bound: bool) -> None:
    assert agent(daemon, token_id).post("/v1/agent/report", json=REPORT).status_code == 204
    assert daemon.service.enrolled is bound


def test_labels_bind_nodes_that_kubernetes_vouches_for(serve: Any) -> None:
    async def node_of(secret: str) -> str | None:
        return "alpha" if secret == "good" else None

    async def approved_of(node: str) -> dict[str, int]:
        return {"v100": len(node)}

    daemon = serve(node_of=node_of, approved_of=approved_of)
    assert enrol(daemon, "bad").status_code == 403
    assert daemon.service.approved == {}
    made = enrol(daemon, "good")
    assert daemon.service.approved == {"alpha": {"v100": 5}}
    caller = daemon.bearer(made.json()["token"])
    assert caller.post("/v1/agent/report", json=REPORT).status_code == 204
    assert daemon.service.enrolled


def test_labels_that_cannot_be_read_let_nobody_in(serve: Any) -> None:
    async def node_of(_secret: str) -> str | None:
        return "alpha"

    async def approved_of(_node: str) -> dict[str, int]:
        raise OSError("the API server answers 403")

    daemon = serve(node_of=node_of, approved_of=approved_of)
    assert enrol(daemon, "good").status_code == 503
    assert daemon.service.store.tokens() == ()


def test_without_authentication_nobody_is_bound_and_nothing_is_renewed(serve: Any) -> None:
    client = serve(auth=False).client
    named = {"X-Leasehold-Node": "alpha"}
    assert client.post("/v1/agent/report", json=REPORT, headers=named).status_code == 204
    assert client.post("/v1/agent/token", headers=named).json() == {"renew_in_s": None}


def test_a_token_is_renewed_at_half_of_its_life_and_the_old_one_ends_after_a_grace(
    daemon: Any,
) -> None:
    old = agent(daemon)
    assert renew(old) == {"renew_in_s": 15 * DAY_S}
    daemon.clock.seconds += 15 * DAY_S
    made = renew(old)
    assert made["renew_in_s"] == 0.0
    new = daemon.bearer(made["token"])
    assert daemon.service.store.tokens("alpha")[0].replaced_s is None, "the answer may be lost"
    assert renew(new) == {"renew_in_s": 15 * DAY_S}
    assert old.get("/v1/whoami").status_code == 200, "within the grace"
    daemon.clock.seconds += 601
    assert old.get("/v1/whoami").status_code == 401
    assert new.get("/v1/whoami").status_code == 200
    daemon.clock.seconds += 30 * DAY_S
    assert new.get("/v1/whoami").status_code == 401, "it was not renewed in time"
    kinds = [row.kind for row in history(daemon)]
    assert kinds == ["token_renewed"]


def test_the_first_token_of_a_node_ends_unless_its_agent_renews_it(daemon: Any) -> None:
    made = enrol(daemon, enrolment(daemon, node="alpha")).json()
    first = daemon.bearer(made["token"])
    assert renew(first) == {"renew_in_s": 15 * DAY_S}
    daemon.clock.seconds += 15 * DAY_S
    second = daemon.bearer(renew(first)["token"])
    assert renew(second) == {"renew_in_s": 15 * DAY_S}
    assert first.get("/v1/whoami").status_code == 200, "within the grace"
    daemon.clock.seconds += 601
    assert first.get("/v1/whoami").status_code == 401


def test_an_agent_that_was_away_for_longer_than_the_life_of_its_first_token_is_out(
    daemon: Any,
) -> None:
    made = enrol(daemon, enrolment(daemon, node="alpha")).json()
    daemon.clock.seconds += 30 * DAY_S + 1
    assert daemon.bearer(made["token"]).get("/v1/whoami").status_code == 401
    assert enrol(daemon, enrolment(daemon, node="alpha")).status_code == 200


def test_an_answer_that_is_lost_is_asked_for_again(daemon: Any) -> None:
    old = agent(daemon)
    daemon.clock.seconds += 15 * DAY_S
    lost = renew(old)
    answer = old.post("/v1/agent/token")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    daemon.clock.seconds += LEAST_BETWEEN_S
    made = renew(old)
    assert daemon.bearer(lost["token"]).get("/v1/whoami").status_code == 401
    assert renew(daemon.bearer(made["token"]))["renew_in_s"] > 0
    assert len(daemon.service.store.tokens("alpha")) == 2


def test_what_comes_of_a_token_is_of_its_kind(daemon: Any) -> None:
    for token_id in ("k8s-t-1", "up-1"):
        caller = agent(daemon, token_id)
        daemon.clock.seconds += 15 * DAY_S
        assert renew(caller)["token_id"].startswith(token_id[:3])


def test_a_token_that_is_to_end_is_not_renewed(daemon: Any) -> None:
    caller = agent(daemon, expires_s=daemon.clock() + 40 * DAY_S)
    daemon.clock.seconds += 30 * DAY_S
    assert renew(caller) == {"renew_in_s": None}


def test_only_agents_renew(daemon: Any) -> None:
    assert daemon.caller("admin").post("/v1/agent/token").status_code == 403
    assert daemon.client.post("/v1/agent/token").status_code == 401


def test_a_token_that_is_shown_after_its_renewal_is_told_of_once_an_hour(daemon: Any) -> None:
    old = agent(daemon)
    daemon.clock.seconds += 15 * DAY_S
    renew(daemon.bearer(renew(old)["token"]))
    context = daemon.app.state.context
    assert old.post("/v1/agent/token").status_code == 403, "its successor is in use"
    daemon.clock.seconds += 601
    for _ in range(3):
        assert old.get("/v1/agent/desired").status_code == 401
        daemon.run(tell_reuses(context))
    lines = [row for row in history(daemon) if row.kind == "token_reused"]
    assert [(row.subject, row.data["token_id"]) for row in lines] == [("alpha", "t-1")]
    daemon.clock.seconds += 3601
    old.get("/v1/agent/desired")
    daemon.run(tell_reuses(context))
    assert len([row for row in history(daemon) if row.kind == "token_reused"]) == 2


def test_tokens_that_ended_long_ago_are_forgotten(daemon: Any) -> None:
    first = agent(daemon, replaced_s=1.0, expires_s=daemon.clock() - 1.0)
    old = agent(daemon, "t-2", replaces="t-1")
    assert first.get("/v1/whoami").status_code == 401
    daemon.clock.seconds += REMEMBERED_S + 1.0
    renew(daemon.bearer(renew(old)["token"]))
    assert "t-1" not in {row.token_id for row in daemon.service.store.tokens()}


def test_the_agent_keeps_its_token_renewed(daemon: Any, tmp_path: Any) -> None:
    secret = new_secret()
    row = TokenRow(
        token_id="t-1",
        secret_hash=hash_secret(secret),
        subject="alpha",
        role="agent",
        created_s=daemon.clock(),
    )
    daemon.service.store.add_token(row)
    file = tmp_path / "agent.token"
    file.write_text(secret)
    token = AgentToken(node="alpha", file=file)
    transport = ASGITransport(daemon.app)

    async def look() -> float:
        link = HttpLink(
            servers=("http://localhost",), node="alpha", token=token.read, transport=transport
        )
        wait_s = await token._renew(link)
        await link.desired(after=(0, -1))  # with any credentials
        return wait_s

    assert daemon.run(look()) == MOST_S
    assert token.read() == secret
    daemon.clock.seconds += 15 * DAY_S
    assert daemon.run(look()) == MOST_S
    assert token.read() != secret
    assert file.stat().st_mode & 0o777 == 0o600
    daemon.clock.seconds += 601
    assert daemon.run(look()) == MOST_S
    # The scheduler of the release before knows nothing of renewals.
    daemon.app.router.routes[:] = [
        r for r in daemon.app.router.routes if getattr(r, "path", "") != "/v1/agent/token"
    ]
    assert daemon.run(look()) == MOST_S
    file.write_text(secret)
    with pytest.raises(PermissionError):
        daemon.run(look())


def test_a_token_that_cannot_be_written_down_is_not_taken_into_use(
    daemon: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = daemon.secret("agent", subject="alpha")
    file = tmp_path / "agent.token"
    file.write_text(old)
    token = AgentToken(node="alpha", file=file)
    daemon.clock.seconds += 15 * DAY_S

    def full(_path: Any, _text: str) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("leasehold.daemon.secrets.agent_token.write_secret", full)

    async def look() -> float:
        transport = ASGITransport(daemon.app)
        link = HttpLink(
            servers=("http://localhost",), node="alpha", token=token.read, transport=transport
        )
        return await token._renew(link)

    assert daemon.run(look()) == LEAST_S
    assert daemon.bearer(old).get("/v1/whoami").status_code == 200


def history(daemon: Any) -> Any:
    rows = daemon.service.store.history(HistoryQuery())
    return [row for row in rows if row.kind.startswith("token_")]
