"""The whole daemon: its answers, its state and its refusals."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import stat
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import httpx
import pytest

import leasehold.daemon.serve as serve_module
from leasehold.config.settings import PolicySection
from leasehold.daemon.http.server import bind, url_of
from leasehold.daemon.secrets.first_token import ensure_admin_token, ensure_given_token
from leasehold.daemon.serve import banner
from leasehold.daemon.state_dir import StateDir
from leasehold_testing.memory_store import MemoryStore
from scheduler.errors import InputError, InvariantError, SolveError, StoreUnavailableError
from scheduler.runtime.service import LiveService
from scheduler.runtime.solver import SolverPool
from scheduler.store.queries import HistoryQuery
from scheduler.store.sql.store import SqlStore


async def until(condition, within_s=30.0):
    end = time.monotonic() + within_s
    while not await condition():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.05)


# -- life ----------------------------------------------------------------------------------------


def test_the_first_start_makes_an_administrator_and_the_second_keeps_it(make_config, daemon):
    config = make_config()
    folder = Path(config.state_dir)

    async def first():
        async with daemon(config) as (running, client):
            assert running.token_made
            assert stat.S_IMODE(running.admin_token_file.stat().st_mode) == 0o600
            assert (await client.get("/v1/whoami")).json()["role"] == "admin"
            refused = await client.get("/v1/whoami", headers={"Authorization": "Bearer lh_no"})
            assert refused.status_code == 401
            kinds = [row.kind for row in running.store.history(HistoryQuery())]
            assert "token_created" in kinds
            return running.admin_token_file.read_text()

    async def second(token):
        async with daemon(config) as (running, client):
            assert not running.token_made
            assert running.admin_token_file.read_text() == token
            assert (await client.get("/v1/whoami")).status_code == 200

    token = asyncio.run(first())
    folder.chmod(0o755)  # as earlier releases left it
    asyncio.run(second(token))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_it_leads_serves_and_gives_the_leadership_up(make_config, daemon):
    config = make_config(throughputs__path="bundled")

    async def scenario():
        async with daemon(config) as (_, client):

            async def ready():
                answer = (await client.get("/readyz")).json()
                return answer["ready"] and answer["leading"]

            await until(ready)
            assert (await client.get("/healthz")).status_code == 200

            async def declared():
                return (await client.get("/v1/throughputs")).json()["throughputs"]

            await until(declared)
            figures = (await client.get("/metrics")).text
            assert 'leasehold_info{version="9.9"} 1.0' in figures
            assert "leasehold_leading 1.0" in figures
            job = {"command": ["true"], "project": "p", "name": "a", "total_steps": 5}
            assert (await client.post("/v1/jobs", json=job)).status_code == 201
        store = SqlStore.open(config.store.url)
        assert store.leader() is None
        assert store.load().snapshot is not None
        store.close()
        async with daemon(config) as (_, client):
            await until(ready_of(client))
            (job,) = (await client.get("/v1/jobs")).json()["jobs"]
            assert job["status"] == "waiting"

    def ready_of(client):
        async def ready():
            return (await client.get("/readyz")).json()["leading"]

        return ready

    asyncio.run(scenario())


def test_open_streams_and_waiting_requests_end_when_it_stops(make_config, daemon):
    async def scenario():
        ended = asyncio.Event()

        async def watch(url, headers):
            headers = headers | {"Accept": "text/event-stream"}
            async with (
                httpx.AsyncClient(timeout=30) as client,
                client.stream("GET", f"{url}/v1/events", headers=headers) as stream,
            ):
                async for _ in stream.aiter_bytes():
                    pass
            ended.set()

        async with daemon(make_config()) as (running, client):
            watching = asyncio.create_task(watch(running.url, dict(client.headers)))
            await asyncio.sleep(0.3)
            begin = time.monotonic()
        assert time.monotonic() - begin < 25.0, "who watches keeps it for no longer than others"
        await asyncio.wait_for(watching, 50.0)
        assert ended.is_set()

    asyncio.run(scenario())


def test_a_driver_that_cannot_go_on_ends_the_daemon_with_its_reason(
    make_config, daemon, monkeypatch
):
    async def fail(self):
        raise InvariantError("two leases on one worker")

    monkeypatch.setattr(LiveService, "run", fail)

    async def scenario():
        async with daemon(make_config()):
            pass

    with pytest.raises(InvariantError, match="two leases"):
        asyncio.run(scenario())


def test_a_policy_that_cannot_be_tried_out_stops_nothing(make_config, daemon, caplog, monkeypatch):
    async def warm(self, policy):
        raise SolveError(f"policy '{policy.name}' is ill")

    monkeypatch.setattr(SolverPool, "warm", warm)

    async def scenario():
        async with daemon(make_config()) as (_, client):
            await until(
                lambda: asyncio.sleep(
                    0, "tried out: policy 'max_min_fairness' is ill" in caplog.text
                )
            )
            assert (await client.get("/healthz")).status_code == 200

    asyncio.run(scenario())


# -- two of them ---------------------------------------------------------------------------------


def leading(client):
    """Return a condition: the daemon that the client asks leads."""

    async def leads():
        return (await client.get("/readyz")).json()["leading"]

    return leads


def test_a_standby_answers_and_takes_over(make_config, daemon, tmp_path):
    url = f"sqlite:///{tmp_path}/both.db"
    first = make_config(store__url=url, state_dir=tmp_path / "a")
    second = make_config(
        store__url=url, state_dir=tmp_path / "b", throughputs__path="bundled", server__no_auth=True
    )

    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            leader_stack = await stack.enter_async_context(contextlib.AsyncExitStack())
            leader, its_client = await leader_stack.enter_async_context(daemon(first))
            await until(leading(its_client))
            _, client = await stack.enter_async_context(daemon(second))

            async def health():
                return (await client.get("/readyz")).json()

            async def stands_by():
                answer = await health()
                return answer["ready"] and not answer["leading"]

            await until(stands_by)
            job = {"command": ["true"], "project": "p", "name": "a", "total_steps": 5}
            refused = await client.post("/v1/jobs", json=job)
            assert refused.status_code in {307, 308, 421, 503}
            assert leader.url in refused.text + str(refused.headers)
            await leader_stack.aclose()

            async def leads():
                return (await health())["leading"]

            await until(leads)

            async def declared():  # an answer that a standby did not have before
                return (await client.get("/v1/throughputs")).json()["throughputs"]

            await until(declared)

    asyncio.run(scenario())


def test_a_standby_passes_requests_on_until_it_leads_itself(make_config, daemon, tmp_path):
    url = f"sqlite:///{tmp_path}/both.db"
    first = make_config(store__url=url, state_dir=tmp_path / "a")
    second = make_config(
        store__url=url, state_dir=tmp_path / "b", server__forward=True, server__no_auth=True
    )

    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            leader_stack = await stack.enter_async_context(contextlib.AsyncExitStack())
            _, through = await leader_stack.enter_async_context(daemon(first))
            token = dict(through.headers)
            await until(leading(through))
            _, client = await stack.enter_async_context(daemon(second))

            async def ready():
                return (await client.get("/readyz")).json()["ready"]

            await until(ready)
            job = {"command": ["true"], "project": "p", "name": "a", "total_steps": 5}
            made = await client.post("/v1/jobs", json=job, headers=token)
            assert made.status_code == 201, made.text
            # Only the leader decides about tokens.
            assert (await client.post("/v1/jobs", json=job)).status_code == 401
            assert (await client.get("/v1/nodes", headers=token)).json() == {"nodes": []}
            await leader_stack.aclose()

            async def serves():
                answer = await client.get(f"/v1/jobs/{made.json()['job_id']}/explain")
                assert answer.status_code in {200, 503}
                return (await client.get("/readyz")).json()["leading"]

            await until(serves)
            again = await client.post("/v1/jobs", json=job)
            assert again.status_code == 201

    asyncio.run(scenario())


def test_two_daemons_cannot_use_one_folder(make_config, daemon):
    config = make_config()

    async def scenario():
        async with daemon(config):
            with pytest.raises(InputError, match="is in use by another scheduler"):
                async with daemon(config):
                    pass

    asyncio.run(scenario())


# -- refusals ------------------------------------------------------------------------------------


def test_a_database_that_is_away_is_one_error(make_config, daemon):
    config = make_config(store__url="postgresql://me:secret@127.0.0.1:1/none", store__wait_s=0)

    async def scenario():
        async with daemon(config):
            pass

    with pytest.raises(StoreUnavailableError, match="cannot be used now") as caught:
        asyncio.run(scenario())
    assert "secret" not in str(caught.value)
    StateDir(Path(config.state_dir)).close()  # the folder is free again


def test_a_start_waits_for_a_database_that_comes_and_says_so(
    make_config, daemon, monkeypatch, caplog, tmp_path
):
    tries, config = [], make_config(store__url="postgresql://db.example/none", store__wait_s=20)

    def opened(_config, *, migrate):
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailableError("the database cannot be used now:\n it starts")
        return SqlStore.open(f"sqlite:///{tmp_path}/later.db")

    monkeypatch.setattr(serve_module, "open_store", opened)

    async def scenario():
        async with daemon(config) as (_, client):
            assert (await client.get("/healthz")).status_code == 200

    asyncio.run(scenario())
    told = [line for line in caplog.messages if "trying again in" in line]
    starts = [line.partition(";")[0] for line in told]
    assert starts == ["the database cannot be used now: it starts"] * 2
    assert "in 0.5 s" in told[0]
    assert "in 1.0 s" in told[1]


def test_a_start_waits_for_no_longer_than_it_is_told_and_for_no_file(
    make_config, daemon, monkeypatch, tmp_path
):
    async def start(config):
        async with daemon(config):
            pass

    config = make_config(store__url="postgresql://me@127.0.0.1:1/none", store__wait_s=0.6)
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError) as caught:
        asyncio.run(start(config))
    assert time.monotonic() - began >= 0.6
    assert caught.value.__notes__ == ["waited 0.6 s for it: store.wait_s"]

    gone = f"sqlite:///{tmp_path}/no/such/folder.db"
    with pytest.raises(StoreUnavailableError):  # at once, and not in an hour
        asyncio.run(start(make_config(store__url=gone, store__wait_s=3600.0)))


def test_a_start_that_waits_for_its_database_can_be_stopped(make_config):
    async def scenario():
        stop = asyncio.Event()
        config = make_config(store__url="postgresql://me@127.0.0.1:1/none")
        task = asyncio.create_task(serve_module.serve(config, stop=stop))
        await asyncio.sleep(0.3)
        assert not task.done()
        stop.set()
        await asyncio.wait_for(task, 10)

    asyncio.run(scenario())


def test_it_is_ready_once_its_solver_is(make_config, daemon, monkeypatch):
    warm = asyncio.Event()

    async def wait(_solver, _config):
        await warm.wait()

    monkeypatch.setattr(serve_module, "_warm", wait)

    async def scenario():
        async with daemon(make_config()) as (_, client):

            async def leading():
                return (await client.get("/readyz")).json()["leading"]

            await until(leading)
            answer = await client.get("/readyz")
            assert answer.status_code == 503
            assert answer.json()["problems"] == ["the solver is starting"]
            warm.set()

            async def ready():
                return (await client.get("/readyz")).status_code == 200

            await until(ready)

    asyncio.run(scenario())


def test_an_address_that_is_taken_is_named(make_config):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*--port"):
            bind(make_config(server__port=port).server)


def test_an_address_that_is_none_of_ours_is_named(make_config, monkeypatch):
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0"):
        bind(make_config(server__host="192.0.2.1").server)
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", mock.Mock(side_effect=unknown))
    with pytest.raises(OSError, match=r"server\.host 'none\.invalid' has no address: Name"):
        bind(make_config(server__host="none.invalid").server)


def test_addresses_are_shown_as_a_person_types_them(make_config):
    settings = make_config(server__host="::1").server
    try:
        bound = bind(settings)
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert url_of(bound, settings).startswith("http://[::1]:")
    bound.close()


@pytest.mark.parametrize("both", [True, False])
def test_all_addresses_are_those_of_both_families(make_config, monkeypatch, both):
    has_ipv6 = socket.has_dualstack_ipv6()
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: both and has_ipv6)
    with bind(make_config(server__host="::").server) as bound:
        port = bound.getsockname()[1]
        for host in ("127.0.0.1", *(["::1"] if both and has_ipv6 else [])):
            with socket.create_connection((host, port), timeout=10):
                pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be used.*--state-dir"):
        StateDir(tmp_path / "file" / "state")


def test_no_token_is_made_where_there_is_one_already(tmp_path):
    store = MemoryStore()
    assert ensure_admin_token(store, tmp_path / "admin.token", now_s=1.0)
    secret = (tmp_path / "admin.token").read_text()
    assert secret.startswith("lh_")
    (row,) = store.tokens()
    assert (row.role, row.subject) == ("admin", "admin")
    assert secret.strip() not in repr(store.tokens())
    assert not ensure_admin_token(store, tmp_path / "admin.token", now_s=2.0)
    assert (tmp_path / "admin.token").read_text() == secret


def test_the_token_in_a_file_is_the_administrators_and_the_one_before_it_no_more(tmp_path):
    store, file = MemoryStore(), tmp_path / "token"
    file.write_text("x" * 40 + "\n")
    assert ensure_given_token(store, file, now_s=1.0)
    assert not ensure_given_token(store, file, now_s=2.0)
    file.write_text("y" * 40)
    assert ensure_given_token(store, file, now_s=3.0)
    old, new = sorted(store.tokens(), key=lambda row: row.created_s)
    assert (old.revoked_s, new.revoked_s) == (3.0, None)
    assert (new.role, new.subject) == ("admin", "admin")
    file.write_text("x" * 40)
    assert not ensure_given_token(store, file, now_s=4.0), "what is revoked stays so"
    assert all(row.revoked_s is not None for row in store.tokens())


def test_a_process_that_was_faster_with_the_given_token_is_no_error(tmp_path, monkeypatch):
    store, file = MemoryStore(), tmp_path / "token"
    file.write_text("x" * 40)
    ensure_given_token(store, file, now_s=1.0)
    monkeypatch.setattr(store, "token", lambda _digest: None)
    assert not ensure_given_token(store, file, now_s=1.0)


@pytest.mark.parametrize(("text", "problem"), [("short", "5 characters"), ("", "must hold one")])
def test_a_given_token_that_can_be_guessed_is_refused(tmp_path, text, problem):
    (tmp_path / "token").write_text(text)
    with pytest.raises(InputError, match=problem):
        ensure_given_token(MemoryStore(), tmp_path / "token", now_s=1.0)


def test_a_daemon_takes_the_administrators_token_that_it_is_given(make_config, daemon, tmp_path):
    file = tmp_path / "given"
    file.write_text("lh_" + "k" * 43)
    config = make_config(server__admin_token_file=file)

    async def scenario():
        async with daemon(config) as (running, client):
            assert running.admin_token_file == file
            assert (await client.get("/v1/whoami")).json()["role"] == "admin"
            assert not (running.state_dir / "admin.token").exists()

    asyncio.run(scenario())


def test_a_daemon_outside_of_a_cluster_cannot_let_pods_in(make_config, daemon, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    config = make_config(kubernetes__agent_account="leasehold/agent")

    async def scenario():
        async with daemon(config):
            pass

    with pytest.raises(InputError, match="runs in no pod"):
        asyncio.run(scenario())


# -- access --------------------------------------------------------------------------------------


def test_without_tokens_everybody_is_an_administrator_and_no_file_is_written(make_config, daemon):
    config = make_config(server__no_auth=True)

    async def scenario():
        async with daemon(config) as (running, client):
            assert not running.admin_token_file.exists()
            assert (await client.get("/v1/whoami")).json()["role"] == "admin"
            assert "every user of this machine" in banner(config, running, version="1")

    asyncio.run(scenario())


def test_the_banner_says_where_with_what_and_hides_passwords(make_config, daemon):
    config = make_config(policy__name="alpha_fairness", policy__parameters__alpha="2")

    async def scenario():
        async with daemon(config) as (running, _):
            text = banner(config, running, version="1.2")
            assert f"Leasehold 1.2 listens on {running.url}" in text
            assert "alpha_fairness alpha=2" in text
            assert str(running.admin_token_file) in text
        postgres = make_config(store__url="postgresql://me:secret@h/d")
        assert "secret" not in banner(postgres, running, version="1")

    asyncio.run(scenario())


def test_the_banner_names_the_policy_in_force_and_not_only_the_configured_one(make_config, daemon):
    config = make_config(policy__name="fifo", server__no_auth=True)

    async def scenario():
        async with daemon(config) as (running, client):
            assert "  policy  fifo\n" in banner(config, running, version="1")
            choice = {"name": "alpha_fairness", "parameters": {"alpha": "2"}, "agnostic": True}

            async def leads():
                return (await client.get("/readyz")).json()["leading"]

            await until(leads)
            assert (await client.put("/v1/policy", json=choice)).status_code == 200
        async with daemon(config) as (running, _):
            said = "  policy  alpha_fairness alpha=2, agnostic, set by anonymous; configured: fifo"
            assert said in banner(config, running, version="1")

    asyncio.run(scenario())


def test_the_banner_says_that_the_policy_in_force_cannot_be_used(make_config, daemon):
    async def scenario():
        async with daemon(make_config(policy__name="fifo")) as (running, _):
            gone = replace(make_config(), policy=PolicySection(name="gone"))
            said = banner(gone, running, version="1")
            assert "  policy  gone\n          ERROR: it cannot be used: no policy is named" in said
            assert "choose another policy by `leasehold policy set`" in said

    asyncio.run(scenario())


def test_a_scheduler_on_a_copy_of_a_state_folder_is_another_one(tmp_path):
    """Also under the same path, as on a clone of the machine."""
    names = []
    for _ in range(2):
        folder = StateDir(tmp_path / "state")
        names.append(folder.holder)
        folder.close()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    (tmp_path / "state").rename(tmp_path / "original")
    (tmp_path / "copy").rename(tmp_path / "state")
    folder = StateDir(tmp_path / "state")
    names.append(folder.holder)
    folder.close()
    assert names[0] == names[1]
    assert names[2] != names[0]
