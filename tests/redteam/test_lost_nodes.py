"""A lost node: an attacker has its token, and reaches no further than its leases.

The attacker has everything that the agent of node ``mallory`` has. Nodes ``alice`` and ``bob`` are
well; ``alice`` runs a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace

import httpx
import pytest
from agent_routes import others_routes
from real_service import as_user, running_service

DAY_S = 86_400.0


@dataclass
class Agent:
    """Actions with a stolen token of a node."""

    name: str
    token: str
    client: httpx.AsyncClient
    sequence: int = 0

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.token}"}

    async def ask(self, method, path, **more):
        return await self.client.request(method, path, headers=self.headers, **more)

    async def desired(self):
        answer = await self.ask("GET", "/v1/agent/desired")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def report(self, *types, node=None, leases=(), term=0, revision=0):
        """Say what this node has; returns the answer."""
        self.sequence += 1
        told = {
            "node": node or self.name,
            "incarnation": 1.0,
            "sequence": self.sequence,
            "term": term,
            "revision": revision,
            "workers": [
                {"index": i, "worker_type": kind, "problem": ""} for i, kind in enumerate(types)
            ],
            "leases": list(leases),
        }
        return await self.ask("POST", "/v1/agent/report", json=told)


async def enrolled(admin, name, *, workers=None):
    fields = {"node": name} | ({} if workers is None else {"workers": workers})
    made = await admin.post("/v1/enrolments", json=fields)
    assert made.status_code == 201, made.text
    given = {"node": name, "secret": made.json()["secret"]}
    answer = await admin.post("/v1/agent/enrol", json=given)
    assert answer.status_code == 200, answer.text
    client = httpx.AsyncClient(base_url=admin.base_url, timeout=30)
    return Agent(name, answer.json()["token"], client)


async def until(look, within_s=60.0):
    end = time.monotonic() + within_s
    while not (found := await look()):
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.1)
    return found


@contextlib.asynccontextmanager
async def cluster(folder, **settings):
    """A scheduler with three nodes, one with a lease of ``alice``; yields the parts."""
    patient = {"leadership__ttl_s": 30}
    async with running_service(folder, **patient | settings) as (running, admin):

        async def leads():
            return (await admin.get("/readyz")).json().get("leading")

        await until(leads)
        alice = await enrolled(admin, "alice")
        mallory = await enrolled(admin, "mallory", workers={"k80": 1})
        try:
            assert (await alice.report("v100")).status_code == 204
            assert (await mallory.report("k80")).status_code == 204
            user = await as_user(admin, "ann")
            job = {
                "name": "secret-work",
                "command": ["train"],
                "env": {"PASSWORD": "hunter2"},
                "worker_types": ["v100"],
                "total_steps": 1000,
            }
            made = await admin.post("/v1/jobs", json=job, headers=user)
            assert made.status_code == 201, made.text

            async def granted():
                return (await alice.desired())["leases"]

            (lease,) = await until(granted)
            yield admin, alice, mallory, lease, running
        finally:
            await alice.client.aclose()
            await mallory.client.aclose()


def attack(folder, story, **settings):
    async def happen():
        async with cluster(folder, **settings) as there:
            await story(*there)

    asyncio.run(asyncio.wait_for(happen(), 240))


async def node_of(admin, name):
    return (await admin.get(f"/v1/nodes/{name}")).json()


async def events(admin, kind):
    return (await admin.get(f"/v1/events?kind={kind}")).json()["events"]


def test_claims_twenty_thousand_workers(tmp_path):
    async def story(admin, _alice, mallory, _lease, _running):
        assert (await mallory.report(*["v100"] * 20_000)).status_code == 422
        # So many as a report may name, of its own type, of others', and of ones that are new.
        claimed = ["k80"] * 1000 + ["v100"] * 1000 + [f"made-up-{n}" for n in range(1000)]
        assert (await mallory.report(*claimed)).status_code == 204
        workers = (await admin.get("/v1/cluster")).json()["workers"]
        assert workers == {"v100": 1, "k80": 1}
        node = await node_of(admin, "mallory")
        assert sum(node["refused"].values()) == 2999
        assert "refused" in node["reason"]
        (told,) = await events(admin, "workers_refused")
        assert (told["subject"], told["data"]["approved"]) == ("mallory", {"k80": 1})
        metrics = (await admin.get("/metrics")).text
        assert "leasehold_workers_refused 2999.0" in metrics
        # It may not approve that itself; an operator may.
        mine = await mallory.ask("PUT", "/v1/nodes/mallory/workers", json={"workers": {"k80": 9}})
        assert mine.status_code == 403
        good = await admin.put("/v1/nodes/mallory/workers", json={"workers": {"k80": 2}})
        assert good.status_code == 200, good.text
        assert (await mallory.report("k80", "k80")).status_code == 204
        assert (await admin.get("/v1/cluster")).json()["workers"] == {"v100": 1, "k80": 2}

    attack(tmp_path, story)


def test_grows_beyond_what_it_reported_first(tmp_path):
    async def story(admin, alice, _mallory, lease, _running):
        desired = await alice.desired()
        running = {
            "lease_id": lease["lease_id"],
            "token": lease["token"],
            "state": "running",
            "steps_done": 0,
            "steps_live": 0,
        }
        now = {"term": desired["term"], "revision": desired["revision"], "leases": [running]}
        assert (await alice.report("v100", "v100", "a100", **now)).status_code == 204
        node = await node_of(admin, "alice")
        assert node["refused"] == {"v100": 1, "a100": 1}
        assert [worker["worker_type"] for worker in node["workers"]] == ["v100"]
        (live,) = (await alice.desired())["leases"]
        assert live["lease_id"] == lease["lease_id"], "what is approved goes on"

    attack(tmp_path, story)


def test_claims_another_nodes_name(tmp_path):
    async def story(admin, _alice, mallory, _lease, _running):
        assert (await mallory.report("v100", node="alice")).status_code == 403
        # The header counts only if no tokens are needed.
        named = {"X-Leasehold-Node": "alice"} | mallory.headers
        answer = await mallory.client.get("/v1/agent/desired", headers=named)
        assert answer.json()["leases"] == []
        for node in (None, "bob"):  # a secret for any node, and one for another
            made = await admin.post("/v1/enrolments", json={"node": node})
            body = {"node": "alice", "secret": made.json()["secret"]}
            answer = await mallory.client.post("/v1/agent/enrol", json=body)
            assert answer.status_code == 403, answer.text
            used = await mallory.client.post("/v1/agent/enrol", json=body | {"node": "bob"})
            assert used.status_code == 200, "it was refused, and is not used up"
        tokens = (await admin.get("/v1/tokens")).json()["tokens"]
        assert len([token for token in tokens if token["subject"] == "alice"]) == 1

    attack(tmp_path, story)


@pytest.mark.parametrize("end", ["completed", "failed", "lost"])
def test_reports_leases_that_are_not_its_own(tmp_path, end):
    async def story(admin, alice, mallory, lease, _running):
        claim = {
            "lease_id": lease["lease_id"],
            "token": lease["token"],
            "state": "ended",
            "reason": end,
            "exit_code": 0,
            "steps_done": 1000,
            "steps_live": 1000,
        }
        desired = await mallory.desired()
        now = {"term": desired["term"], "revision": desired["revision"] + 1000}
        assert (await mallory.report("k80", leases=[claim], **now)).status_code == 204
        (live,) = (await admin.get("/v1/leases")).json()["leases"]
        assert (live["lease_id"], live["steps_done"]) == (lease["lease_id"], 0)
        assert (await alice.desired())["leases"][0]["lease_id"] == lease["lease_id"]
        job = (await admin.get(f"/v1/jobs/{lease['job_id']}")).json()
        assert (job["status"], job["failures"]) == ("running", 0)

    attack(tmp_path, story)


def test_reads_another_nodes_jobs_and_output(tmp_path):
    async def story(admin, alice, mallory, lease, _running):
        job_id, lease_id = lease["job_id"], lease["lease_id"]
        own = await alice.ask("PUT", f"/v1/agent/logs/{lease_id}/out?offset=0", content=b"loss 0.1")
        assert own.status_code == 200
        document = (await admin.get("/v1/openapi.json")).json()
        refused = []
        for method, path, at in others_routes(document, job=job_id, node="alice"):
            answer = await mallory.ask(method, at)
            text = answer.text
            assert "hunter2" not in text, (method, path)
            assert "loss 0.1" not in text, (method, path)
            if answer.status_code == 403:
                refused.append(path)
            else:
                # Only the owner of this token, and whether the scheduler is well.
                assert path in {"/v1/whoami", "/v1/version", "/healthz", "/readyz"} or (
                    answer.status_code in {404, 405, 415, 422}
                ), (method, path, answer.status_code)
        assert {"/v1/jobs", "/v1/jobs/{job_id}", "/v1/nodes", "/v1/events"} <= set(refused)
        # What agents may ask is of their own node.
        assert (await mallory.desired())["leases"] == []
        for stream in ("out", "err"):
            path = f"/v1/agent/logs/{lease_id}/{stream}?offset=0"
            assert (await mallory.ask("PUT", path, content=b"forged")).status_code == 404
            assert (await mallory.ask("GET", path)).status_code == 405
        logs = (await admin.get(f"/v1/jobs/{job_id}/log")).text
        assert "loss 0.1" in logs
        assert "forged" not in logs

    attack(tmp_path, story)


def test_ends_another_node(tmp_path):
    async def story(admin, _alice, mallory, _lease, _running):
        for action in ("cordon", "drain", "uncordon"):
            assert (await mallory.ask("POST", f"/v1/nodes/alice/{action}")).status_code == 403
        assert (await mallory.ask("DELETE", "/v1/nodes/alice")).status_code == 403
        assert (await node_of(admin, "alice"))["state"] == "ready"

    attack(tmp_path, story)


async def renew(agent):
    answer = await agent.ask("POST", "/v1/agent/token")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_replays_a_token_that_was_renewed(tmp_path):
    async def story(admin, _alice, mallory, _lease, running):
        stolen = Agent("mallory", mallory.token, mallory.client, sequence=10_000)
        assert (await renew(mallory))["renew_in_s"] > 14 * DAY_S
        age(running.store, "mallory", 16 * DAY_S)
        lost = await renew(mallory)  # an answer that never arrives
        assert lost["token"]
        assert (await mallory.ask("POST", "/v1/agent/token")).status_code == 429
        mallory.token = lost["token"]
        assert (await renew(mallory))["renew_in_s"] > 14 * DAY_S
        # Both are valid for the grace; then the old one is not, and its use is reported.
        end_grace(running.store, "mallory")

        async def refused():
            return (await stolen.ask("GET", "/v1/agent/desired")).status_code == 401

        await until(refused)
        assert (await stolen.report(*["v100"] * 8)).status_code == 401
        assert (await mallory.ask("GET", "/v1/agent/desired")).status_code == 200

        async def told():
            return await events(admin, "token_reused")

        (line,) = await until(told)
        assert (line["subject_kind"], line["subject"]) == ("node", "mallory")
        assert "leasehold_agent_tokens_reused_total 1.0" in (await admin.get("/metrics")).text

    attack(tmp_path, story)


def test_renews_a_stolen_token_before_its_agent_does(tmp_path):
    async def story(admin, _alice, mallory, _lease, running):
        thief = Agent("mallory", mallory.token, mallory.client)
        age(running.store, "mallory", 16 * DAY_S)
        thief.token = (await renew(thief))["token"]
        await renew(thief)
        # The agent finds that out when it is its turn, and so do the operators.
        assert (await mallory.ask("POST", "/v1/agent/token")).status_code == 403

        async def told():
            return await events(admin, "token_reused")

        assert await until(told)
        # What helps: the node's tokens are revoked.
        for token in (await admin.get("/v1/tokens")).json()["tokens"]:
            if token["subject"] == "mallory":
                assert (await admin.delete(f"/v1/tokens/{token['token_id']}")).status_code == 204
        assert (await thief.ask("GET", "/v1/agent/desired")).status_code == 401

    attack(tmp_path, story)


def test_makes_itself_a_longer_life_than_it_was_given(tmp_path):
    async def story(admin, _alice, _mallory, _lease, running):
        made = await admin.post(
            "/v1/tokens", json={"subject": "bob", "role": "agent", "ttl_s": 3600}
        )
        async with httpx.AsyncClient(base_url=admin.base_url) as client:
            bob = Agent("bob", made.json()["token"], client)
            age(running.store, "bob", 30 * DAY_S, expires_s=time.time() + 60)
            assert await renew(bob) == {"renew_in_s": None}

    attack(tmp_path, story)


def age(store, subject, by_s, *, expires_s=None):
    """Let a subject's tokens be older than they are."""
    for row in store.tokens(subject):
        change(store, row, created_s=row.created_s - by_s, expires_s=expires_s)


def end_grace(store, subject):
    for row in store.tokens(subject):
        if row.replaced_s is not None:
            change(store, row, expires_s=time.time() - 1.0)


def change(store, row, **values):
    store.drop_token(row.token_id)
    store.add_token(replace(row, **values))
