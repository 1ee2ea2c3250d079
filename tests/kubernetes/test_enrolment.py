"""Agents are admitted by the tokens of their pods alone, each for its own node."""

from __future__ import annotations

from installation import NAMESPACE, RELEASE, eventually
from proof import check
from scenes import one_node, two_nodes

ACCOUNT = f"{RELEASE}-leasehold-agent"


def enrol(made, node, secret):
    """Return the scheduler's answer to an agent that shows a token."""
    made.client.headers.pop("Authorization", None)
    return made.client.post("/v1/agent/enrol", json={"node": node, "secret": secret})


def test_every_agent_enrols_by_its_pods_token_and_is_an_agent_and_nothing_more(live):
    kubelets, made = live(two_nodes())
    for name, agent in made.agents.items():
        assert f"enrolled as node {name}" in agent.text()
    token = (made.folder / "ada" / "agent.token").read_text().strip()
    made.client.headers["Authorization"] = f"Bearer {token}"
    assert made.client.post("/v1/jobs", json={}).status_code == 403
    check(kubelets)


def test_no_other_token_lets_anybody_in(live, chart_plane):
    _, made = live([one_node()])
    api = chart_plane.api()
    pod = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/agent-ada")
    api.close()

    def token(account=ACCOUNT, **options):
        return chart_plane.account_token(NAMESPACE, account, **options)

    shown = (made.folder / "ada.identity").read_text()
    other = f"{RELEASE}-leasehold-scheduler"
    assert enrol(made, "bert", shown).status_code == 403, "of another node"
    assert enrol(made, "ada", token(other, audience="leasehold")).status_code == 403
    assert enrol(made, "ada", token(pod=pod)).status_code == 403, "for the API server"
    assert enrol(made, "ada", token(audience="leasehold")).status_code == 403, "of no pod"
    assert enrol(made, "ada", "a.b.c").status_code == 403
    assert enrol(made, "ada", shown).status_code == 200
    chart_plane.stop_api_server()
    try:
        assert enrol(made, "ada", shown).status_code == 503, "nobody knows"
    finally:
        chart_plane.start_api_server()
    eventually("it answers again", lambda: enrol(made, "ada", shown).status_code == 200)
