"""``leasehold.Client`` against the real routes."""

from __future__ import annotations

import asyncio
import http.server
import os
import subprocess
import sys
import threading

import pytest

import leasehold as package
from leasehold import AmbiguousNameError, AsyncClient, Client, ClientError
from scheduler.domain.jobs.job import JobStatus
from scheduler.logs.output import LogChunk


@pytest.fixture
def client(scheduler):
    return Client(scheduler.url, patience_s=5.0)


def test_a_job_is_submitted_listed_cancelled_and_awaited(client, scheduler):
    job_id = client.submit(name="a", command=["x"], labels={"k": "v"})
    assert client.job(job_id)["spec"]["command"] == ["x"]
    assert [job["job_id"] for job in client.jobs(label="k=v", status=["waiting"])] == [job_id]
    assert list(client.jobs(label="k=w")) == []
    scheduler.service.log.clear()
    assert client.log(job_id) == b""
    assert client.cancel(job_id)
    assert client.wait(job_id)["status"] == "cancelled"
    again = client.submit(name="b", command=["x"], client_id="mine")
    assert client.submit(name="b", command=["x"], client_id="mine") == again
    with pytest.raises(TimeoutError, match="has not ended within 0 s"):
        client.wait(again, timeout_s=0)
    scheduler.do(scheduler.service.finish, again)
    assert not client.cancel(again)


def test_all_pages_of_a_list_are_read(client):
    body = {"name": "a", "command": ["x"], "array": 600}
    assert len(client.call("POST", "/jobs", body)["jobs"]) == 600
    assert len({job["job_id"] for job in client.jobs()}) == 600


def test_leases_of_a_window_are_read_page_by_page(client, scheduler):
    jobs = [client.submit(name="a", command=["x"]) for _ in range(3)]
    for job_id in jobs:
        scheduler.do(scheduler.service.run, job_id)
    now_s = scheduler.service.now_s
    window = {"since_s": now_s - 60, "until_s": now_s + 60, "node": ["alpha"], "limit": 2}
    page = client.attempts_within(**window)
    assert [lease["job_id"] for lease in page["attempts"]] == [jobs[2], jobs[1]]
    last = client.attempts_within(**window, before=page["next_before"])
    assert [lease["job_id"] for lease in last["attempts"]] == [jobs[0]]
    assert last["next_before"] is None
    assert client.attempts_within(until_s=now_s)["attempts"] == []
    with pytest.raises(ClientError, match="until_s: must be later than since_s") as caught:
        client.attempts_within(since_s=now_s, until_s=now_s - 1)
    assert caught.value.status == 422


def test_refusals_have_status_words_and_fields(client):
    with pytest.raises(ClientError, match="name: ") as caught:
        client.submit(name="*", command=["x"])
    assert caught.value.status == 422
    assert caught.value.problem["errors"][0]["field"] == "name"
    for call in (client.job, client.cancel, client.wait, client.log):
        with pytest.raises(ClientError) as caught:
            call("nothing")
        assert caught.value.status == 404


def test_a_refusal_says_why_once_and_does_not_send_its_reader_elsewhere(client):
    with pytest.raises(ClientError) as caught:
        client.submit(name="a", command=["x"], nosuch=1)
    assert str(caught.value) == "'nosuch' cannot be used:\n  nosuch: unknown field; leave it out"


def test_arguments_that_do_not_fit_are_told_of_the_client_that_was_asked(client):
    with pytest.raises(TypeError, match=r"^Client.submit\(\) missing .*'command'"):
        client.submit(name="a")


def test_a_command_in_one_string_is_not_taken_for_letters(client, scheduler):
    with pytest.raises(TypeError, match="command is 'no'; give a list"):
        client.submit(name="x", command="no")
    assert not list(client.jobs())


def test_events_go_on_through_a_restart(client, scheduler):
    first = client.submit(name="a", command=["x"])
    events = client.events(after=0)
    assert next(events)["subject"] == first
    scheduler.stop()
    scheduler.start()
    second = client.submit(name="b", command=["x"])
    assert next(events)["subject"] == second
    later = client.events()
    results = []
    reader = threading.Thread(target=lambda: results.append(next(later)["kind"]))
    reader.start()
    while reader.is_alive():
        client.call("PUT", "/projects/p", {"weight": 2.0})
        reader.join(0.1)
    assert results == ["project_set"] or results[0].startswith("project")


def test_a_call_waits_for_a_scheduler_that_restarts(client, scheduler):
    scheduler.stop()
    starter = threading.Timer(0.3, scheduler.start)
    starter.start()
    job_id = client.submit(name="a", command=["x"])
    starter.join()
    assert job_id == "job-1"


def test_nobody_there_is_an_error_after_the_patience():
    with pytest.raises(ClientError, match="no scheduler answers at") as caught:
        Client("http://127.0.0.1:9", patience_s=0.0).job("x")
    assert caught.value.status == 0
    with pytest.raises(
        ValueError, match=r"is 'file:///etc/passwd' \(the argument 'server'\); give "
    ):
        Client("file:///etc/passwd")
    with pytest.raises(ValueError, match="the argument 'token' holds no token") as caught:
        Client(token="two words")
    assert "two words" not in str(caught.value)
    with pytest.raises(TimeoutError):
        Client("http://127.0.0.1:9", patience_s=0.0).wait("x", timeout_s=0.2)


def test_tokens_are_shown_and_come_from_the_environment(serve, monkeypatch):
    scheduler = serve(auth=True)
    with pytest.raises(ClientError) as caught:
        list(Client(scheduler.url).jobs())
    assert caught.value.status == 401
    token = scheduler.token("viewer")
    assert list(Client(scheduler.url, token=token).jobs()) == []
    monkeypatch.setenv("LEASEHOLD_TOKEN", token)
    assert list(Client().jobs()) == []


def test_a_token_that_a_starting_scheduler_leaves_is_found(serve, leaves_token):
    scheduler = serve(auth=True)
    leaves_token(scheduler)
    assert Client(scheduler.url).whoami()["role"] == "admin"
    with pytest.raises(ClientError, match="no valid token"):
        Client(scheduler.url, token="").whoami()


def test_address_token_and_certificates_come_from_where_the_commands_find_them(
    serve, surroundings, monkeypatch
):
    scheduler = serve(auth=True)
    monkeypatch.delenv("LEASEHOLD_SERVER")
    file = surroundings / "config" / "leasehold" / "client.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'server = "{scheduler.url}"\ntoken = "{scheduler.token("viewer")}"\n')
    assert Client().whoami()["role"] == "viewer"
    assert Client(token=scheduler.token("operator")).whoami()["role"] == "operator"
    file.write_text('colour = "red"')
    with pytest.raises(ValueError, match="unknown key 'colour'"):
        Client()
    file.unlink()
    local = surroundings / "state" / "leasehold" / "admin.token"
    local.parent.mkdir(parents=True)
    local.write_text(scheduler.token("admin"))
    assert Client(scheduler.url).whoami()["role"] == "admin"


def test_every_action_on_jobs_has_a_method(client, scheduler):
    first, second = client.submit_all([{"name": n, "command": ["x"]} for n in ("a", "b")])
    job_id = first["job_id"]
    assert client.dry_run(name="c", command=["x"])["fits"]
    assert (client.hold(job_id, reason="later"), client.hold(job_id)) == (True, False)
    assert client.release(job_id)
    assert (client.change(job_id, weight=2.0), client.job(job_id)["weight"]) == (True, 2.0)
    assert client.explain(job_id)["reason"] == "turn"
    scheduler.do(scheduler.service.run, job_id)
    assert [attempt["attempt"] for attempt in client.attempts(job_id)] == [1]
    assert client.requeue(job_id)
    ids = [job_id, second["job_id"]]
    assert client.act("cancel", ids=ids, dry_run=True)["changed"] == 2
    assert {client.job(one)["status"] for one in ids} == {"waiting"}
    assert client.act("cancel", selector={"owner": "anonymous"}, reason="over")["changed"] == 2
    assert scheduler.service.reason == "over"
    third = client.submit(name="d", command=["x"])
    assert client.change_all(ids=["d", "nothing"], weight=3.0)["changed"] == 1
    waiting = {"status": ["waiting"]}
    assert client.change_all(selector=waiting, deadline_s=9e9)["changed"] == 1
    assert client.change_all(selector=waiting, deadline_s=None)["changed"] == 1
    assert client.change_all(selector=waiting, deadline_s=None)["changed"] == 0
    assert client.job(third)["weight"] == 3.0
    assert not client.cancel(job_id, reason="over")


def test_jobs_are_named_by_names_and_beginnings_of_ids_too(client, scheduler):
    for name in ("train", "train", "eval"):
        client.submit(name=name, command=["x"])
    assert client.job("eval")["job_id"] == client.explain("eval")["job_id"] == "job-3"
    for act in (client.hold, client.release, client.cancel, client.requeue):
        assert act("eval")
    assert client.change("eval", weight=2.0)
    assert client.attempts("eval") == []
    assert client.log("eval") == client.log("job-3")
    with pytest.raises(AmbiguousNameError, match="'train' means 2 jobs; give the id") as caught:
        client.cancel("train")
    assert "job-1 (train, waiting)" in caught.value.__notes__
    acted = client.act("hold", ids=["eval", "train", "nothing"])
    assert [job["code"] for job in acted["jobs"]] == ["", "invalid", "not_found"]
    assert acted["changed"] == 1
    scheduler.do(scheduler.service.finish, "job-3")
    assert client.wait("eval")["status"] == "completed"


def test_an_exact_name_counts_before_the_beginning_of_an_id_even_if_its_job_has_ended(
    client, scheduler
):
    first = client.submit(name="job", command=["x"])
    scheduler.do(scheduler.service.finish, first)
    client.submit(name="other", command=["x"])
    client.submit(name="dependent", command=["x"], depends_on=[client.job("job")["job_id"]])
    assert client.job("job")["job_id"] == first
    assert client.job("job-2")["name"] == "other"
    with pytest.raises(AmbiguousNameError, match="'job-' means 2 jobs"):
        client.job("job-")


def test_a_filter_that_is_none_is_told_when_it_is_given(client):
    with pytest.raises(ClientError, match="status") as caught:
        client.jobs(status="bogus")
    for status in JobStatus:
        assert f"'{status.value}'" in str(caught.value)
    for filters in ({"kind": "bogus"}, {"after": 0, "subject_kind": "*"}):
        with pytest.raises(ClientError) as caught:
            client.events(**filters)
        assert caught.value.status == 422


def test_every_action_on_the_cluster_has_a_method(client, scheduler):
    assert client.cluster()["workers"] == {"v100": 8}
    assert client.leases() == client.plan()["leases"] == []
    assert [node["name"] for node in client.nodes()] == ["alpha"]
    assert client.cordon("alpha", reason="fan")["state"] == "cordoned"
    assert client.uncordon("alpha")["state"] == "ready"
    assert client.drain("alpha")["state"] == client.node("alpha")["state"] == "draining"
    client.forget_node("alpha")
    assert client.nodes() == []


def test_every_setting_has_a_method(client):
    assert client.set_policy("alpha_fairness", alpha="2", agnostic=True)["agnostic"]
    assert client.policy()["parameters"] == {"alpha": "2"}
    assert "isolated" in {policy["name"] for policy in client.policies()}
    assert client.set_project("vision", max_jobs=3)["limits"]["max_jobs"] == 3
    assert "vision" in {project["limits"]["project"] for project in client.projects()}
    window = {"from_s": 1e10, "until_s": 2e10}
    client.reserve(name="r", worker_type="v100", workers=2, project="vision", **window)
    assert client.reservation("r")["reservation"]["workers"] == 2
    assert [one["reservation"]["name"] for one in client.reservations()] == ["r"]
    client.delete_reservation("r")
    assert client.reservations() == []
    figure = {"job_type": "bert", "worker_type": "v100", "steps_per_s": 2.0}
    pair = {"job_type": "bert", "with_job_type": "vgg", "worker_type": "v100"}
    parts = {"part": 0.8, "with_part": 0.7}
    assert client.declare_throughputs([figure], [pair | parts])["changed"] == 2
    assert client.sharing(job_type="vgg") == [pair | parts | {"scale_factor": 1}]
    assert [f["steps_per_s"] for f in client.throughputs(job_type="bert")] == [2.0]
    assert client.forget_throughputs("bert") == {"changed": 1}
    assert client.throughputs() == []
    made = client.create_token(subject="ada", role="user")
    assert made["token"].startswith("lh_")
    assert [token["token_id"] for token in client.tokens()] == [made["token_id"]]
    client.revoke_token(made["token_id"])
    assert client.enrol(node="n1")


@pytest.fixture
def scripted():
    """Return what serves a list of answers (status, headers, body) on a port of its own."""
    servers = []

    def serve(answers):
        seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers.get("Content-Length", 0))
                seen.append((self.path, self.headers.get("Authorization"), self.rfile.read(length)))
                status, headers, body = answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST  # noqa: N815 - the library's name

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}", seen

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_busy_scheduler_is_asked_again(scripted):
    url, seen = scripted([
        (503, {"Retry-After": "0.1"}, b""), (429, {"Retry-After": "a date"}, b"[]"),
        (201, {}, b'{"job_id": "j"}'),
    ])  # fmt: skip
    assert Client(url).submit(name="a", command=["x"]) == "j"
    assert seen[0] == seen[1] == seen[2]  # the same id each time


def test_a_standby_names_the_leader(scripted):
    leader, seen = scripted([(201, {}, b'{"job_id": "j"}')])
    standby, _ = scripted([(307, {"Location": f"{leader}/v1/jobs"}, b"")])
    assert Client(standby, token="lh_x").submit(name="a", command=["x"]) == "j"
    assert seen[0][:2] == ("/v1/jobs", "Bearer lh_x")
    nowhere, _ = scripted([(307, {"Location": "ftp://x"}, b"")])
    with pytest.raises(ClientError) as caught:
        Client(nowhere).submit(name="a", command=["x"])
    assert caught.value.status == 307


def test_a_server_that_is_not_ours_is_told_apart(scripted):
    url, _ = scripted([(200, {}, b"<html>"), (500, {}, b"<html>"), (204, {}, b"")])
    client = Client(url, patience_s=0.0)
    with pytest.raises(ClientError, match="is that a scheduler"):
        client.job("x")
    with pytest.raises(ClientError, match="the answer was 500"):
        client.job("x")
    assert client.call("POST", "/nodes/x") is None


def test_certificates_can_be_given():
    import ssl

    client = Client("https://127.0.0.1:9", context=ssl.create_default_context(), patience_s=0.0)
    with pytest.raises(ClientError):
        client.job("x")


def test_httpx_is_loaded_when_a_request_is_made_and_nothing_of_ours_ever(scheduler):
    code = (
        "import sys; from leasehold import Client; client = Client(sys.argv[1]); "
        "names = {'httpx', 'asyncio', 'scheduler', 'numpy', 'pydantic'}; "
        "loaded = lambda: names & set(sys.modules); "
        "print(sorted(loaded())); client.nodes(); print(sorted(loaded()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, scheduler.url], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    before, after = ran.stdout.splitlines()
    assert before == "[]"
    assert "httpx" in after
    assert "scheduler" not in after
    assert "pydantic" not in after
    assert {"AsyncClient", "Client", "ClientError"} <= set(package.__all__)


def test_a_forked_process_makes_connections_of_its_own(client):
    assert client.nodes()
    there, here = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(here, str(len(client.nodes())).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(there, 10) == b"1"
    assert client.nodes()
    os.close(there)
    os.close(here)


def test_a_client_is_closed_and_goes_on(client):
    with client:
        assert client.nodes()
    assert client.nodes()
    client.close()
    client.close()


def test_output_is_followed_piece_by_piece(client, scheduler):
    job_id = client.submit(name="a", command=["x"])
    scheduler.do(scheduler.service.run, job_id)
    for offset, data in ((0, b"one"), (3, b"two")):
        chunk = LogChunk(stream="out", node="alpha", attempt=1, offset=offset, data=data)
        scheduler.service.log.append((job_id, chunk))
    scheduler.do(scheduler.service.finish, job_id)
    *pieces, end = client.log_pieces("a", follow=True)
    assert [(piece["offset"], piece["data"]) for piece in pieces] == [(0, b"one"), (3, b"two")]
    assert end.complete is not False


def test_every_method_is_there_for_an_event_loop(scheduler):
    async def work():
        async with AsyncClient(scheduler.url, patience_s=5.0) as client:
            first, second = [await client.submit(name=name, command=["x"]) for name in ("a", "b")]
            assert [job["name"] async for job in client.jobs()] == ["b", "a"]
            events = client.events(after=0)
            assert [(await anext(events))["subject"] for _ in range(2)] == [first, second]
            waiting = asyncio.create_task(client.wait("a"))
            assert await client.cancel(first)
            assert (await waiting)["status"] == "cancelled"
            assert (await anext(events))["subject"] == first
            await events.aclose()
            with pytest.raises(ClientError):
                await anext(client.events(kind="bogus"))
            await client.submit(name="b", command=["x"])
            with pytest.raises(AmbiguousNameError):
                await client.hold("b")
        with pytest.raises(ClientError, match="no scheduler answers"):
            await AsyncClient("http://127.0.0.1:9", patience_s=0.0).nodes()

    asyncio.run(work())


def test_a_coroutine_waits_for_a_scheduler_that_restarts_while_others_go_on(scheduler):
    scheduler.stop()
    starter = threading.Timer(0.5, scheduler.start)

    async def work():
        ticks = 0
        async with AsyncClient(scheduler.url, patience_s=20.0) as client:
            call = asyncio.create_task(client.nodes())
            while not call.done():
                ticks += 1
                await asyncio.sleep(0.01)
            return ticks, await call

    starter.start()
    ticks, nodes = asyncio.run(work())
    starter.join()
    assert ticks > 1
    assert len(nodes) == 1
