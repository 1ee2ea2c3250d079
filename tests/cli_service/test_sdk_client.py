"""``leasehold.Client`` against the real routes."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading

import pytest

import leasehold as package
from leasehold import Client, ClientError


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


def test_refusals_have_status_words_and_fields(client):
    with pytest.raises(ClientError, match="name: ") as caught:
        client.submit(name="*", command=["x"])
    assert caught.value.status == 422
    assert caught.value.problem["errors"][0]["field"] == "name"
    for call in (client.job, client.cancel, client.wait, client.log):
        with pytest.raises(ClientError) as caught:
            call("nothing")
        assert caught.value.status == 404
    with pytest.raises(ClientError):
        next(client.events(after=0, subject_kind="*"))


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
    with pytest.raises(ValueError, match="give http"):
        Client("file:///etc/passwd")
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


def test_the_client_needs_nothing_but_the_standard_library():
    code = (
        "import sys; from leasehold import Client; "
        "sys.exit(str({'httpx', 'scheduler', 'numpy'} & set(sys.modules)) "
        "if {'httpx', 'scheduler', 'numpy'} & set(sys.modules) else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert {"Client", "ClientError"} <= set(package.__all__)
