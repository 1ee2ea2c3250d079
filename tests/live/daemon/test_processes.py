"""The commands as processes: signals, exit codes, restarts, and a laptop's day."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest


def client_of(process, state):
    url = process.url
    token = (state / "admin.token").read_text().strip()
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


def wait_until(condition, within_s=60.0):
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_gracefully_with_exit_code_0(start, tmp_path, number):
    serve = start("serve", f"--state-dir={tmp_path / 's'}")
    assert httpx.get(f"{serve.url}/healthz").status_code == 200
    serve.send(number)
    assert serve.end() == 0
    assert f"{number.name}: stopping" in serve.output
    assert "Traceback" not in serve.output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_it_at_once(start, tmp_path, number, code):
    serve = start("serve", f"--state-dir={tmp_path / 's'}", "--no-auth")
    address = urlsplit(serve.url)
    with socket.create_connection((address.hostname, address.port)) as caller:
        # A request that never ends keeps the graceful stop waiting.
        caller.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n" % address.netloc.encode()
        )
        assert caller.recv(100).startswith(b"HTTP/1.1 100 ")  # it waits for the body
        serve.send(number)
        serve.wait_for("a second signal stops at once")
        serve.send(number)
        assert serve.end() == code  # a graceful end would be 0


def test_who_was_killed_leads_again_at_once(start, tmp_path):
    state = tmp_path / "s"
    usual_ttl = "--set=leadership.ttl_s=60"
    options = (f"--state-dir={state}", usual_ttl, "--set=server.port=0", "--set=leases.margin_s=1")
    first = start("serve", *options, quick=False)
    with client_of(first, state) as client:
        wait_until(lambda: client.get("/readyz").json()["leading"])
        job = {"command": ["true"], "project": "p", "name": "a", "total_steps": 5}
        job_id = client.post("/v1/jobs", json=job).json()["job_id"]
    first.send(signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    second = start("serve", *options, quick=False)
    with client_of(second, state) as client:
        wait_until(lambda: client.get("/readyz").json()["leading"], within_s=20)
        assert client.get(f"/v1/jobs/{job_id}").json()["status"] == "waiting"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--no-auth", "--host=0.0.0.0"], 2, "--no-auth: server.no_auth: anyone that reaches"),
        (
            ["--port=0", "--db=postgresql://me:geheim@127.0.0.1:1/x", "--set=store.wait_s=0"],
            1,
            "the database cannot be used now",
        ),
        (["--port=0", "--state-dir=/proc/none"], 2, "state folder /proc/none cannot be used"),
        (["--set=server.prot=1"], 2, "did you mean 'server.port'?"),
        (["--set=server.port"], 2, "--set is 'server.port'; give KEY=VALUE"),
        (["--param=alpha=1"], 2, "--param alpha"),
        (["--policy=fifi", "--log-level=loud"], 2, "the configuration has 2 problems"),
    ],
)
def test_what_cannot_start_says_so_in_a_line_and_ends(start, options, code, said):
    serve = start("serve", *options, quick=False)
    assert serve.end() == code
    assert said in serve.output
    assert "Traceback" not in serve.output
    assert "geheim" not in serve.output


def test_a_port_that_is_taken_is_one_line(start):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        serve = start("serve", f"--port={port}", quick=False)
        assert serve.end() == 1
    assert serve.output == (
        f"leasehold: cannot listen on 127.0.0.1:{port}: Address already in use; stop the process "
        "that listens there or choose another --port\n"
    )


def test_logs_can_be_objects_and_tokens_are_in_none(start, tmp_path):
    state = tmp_path / "s"
    serve = start("serve", f"--state-dir={state}", "--log-json", "--set=log.requests=true")
    with client_of(serve, state) as client:
        assert client.get("/v1/whoami").status_code == 200
        assert client.get("/v1/jobs?token=lh_abcdefghijkl").status_code in {200, 422}
    serve.send(signal.SIGTERM)
    serve.end()
    objects = [json.loads(line) for line in serve.lines if line.startswith("{")]
    assert any(found.get("request", {}).get("path") == "/v1/whoami" for found in objects)
    assert (state / "admin.token").read_text().strip() not in serve.output
    assert "lh_abcdefghijkl" not in serve.output


JOB = """
import pathlib, signal, sys, time
done = pathlib.Path("done")
steps = int(done.read_text()) if done.exists() else 0
def leave(*_):
    done.write_text(str(steps)); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
while steps < 30:
    time.sleep(0.1); steps += 1; done.write_text(str(steps)); print(f"steps={steps}", flush=True)
"""


def test_a_laptop_runs_a_job_over_a_restart(start, tmp_path):
    state, work = tmp_path / "s", tmp_path / "work"
    work.mkdir()
    (work / "job.py").write_text(JOB)
    options = (f"--state-dir={state}", "--worker=v100:1", "--node=laptop")
    first = start("up", *options)
    first.wait_for("In another terminal")
    assert f"export LEASEHOLD_STATE_DIR={state}" in first.output
    assert f"export LEASEHOLD_SERVER={first.url}" in first.output
    code = re.search(rf"{re.escape(first.url)}/sign-in\?code=(\S+)", first.output)[1]
    answer = httpx.post(f"{first.url}/sign-in", data={"code": code}, headers={"Origin": first.url})
    cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert httpx.get(f"{first.url}/jobs", headers=cookie).status_code == 200
    with client_of(first, state) as client:
        job = {
            "name": "a",
            "project": "p",
            "command": ["python3", "job.py"],
            "working_dir": str(work),
            "total_steps": 30,
            "progress_regex": "steps=(?P<steps>\\d+)",
            "throughputs": {"v100": 10},
            "notice_s": 0.2,
            "grace_s": 0.2,
        }
        wait_until(lambda: client.get("/readyz").json()["leading"])
        job_id = client.post("/v1/jobs", json=job).json()["job_id"]
        wait_until((work / "done").exists)
    first.send(signal.SIGINT)
    assert first.end() == 0, first.output
    so_far = int((work / "done").read_text())
    assert 0 < so_far < 30
    time.sleep(0.5)
    assert int((work / "done").read_text()) == so_far  # nothing goes on alone
    second = start("up", *options)
    with client_of(second, state) as client:
        tokens = client.get("/v1/tokens").json()["tokens"]
        assert [t["role"] for t in tokens].count("agent") == 1  # the agent's is used again

        def completed():
            return client.get(f"/v1/jobs/{job_id}").json()["status"] == "completed"

        wait_until(completed)
    assert (work / "done").read_text() == "30"
    second.send(signal.SIGTERM)
    assert second.end() == 0


def test_a_laptop_without_workers_is_told_what_to_say(start, tmp_path):
    up = start("up", f"--state-dir={tmp_path / 's'}", "--worker=v100")
    assert up.end() == 2
    assert "v100" in up.output
    assert "Traceback" not in up.output
