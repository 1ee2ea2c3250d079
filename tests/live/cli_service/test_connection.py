"""Which scheduler, which token; messages if it is away, refuses or is busy."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from leasehold.cli.session.client import ServiceClient
from leasehold.cli.session.connection import Connection, find_connection
from leasehold.client.exchange import Patience
from leasehold.daemon.state_dir import StateDir
from scheduler.errors import (
    AnswerError,
    ConflictError,
    InputError,
    LeaseholdError,
    NotFoundError,
    NotPermittedError,
    UnreachableError,
)


@pytest.fixture
def config(surroundings):
    """Return what writes client.toml."""

    def write(text: str) -> None:
        folder = surroundings / "config" / "leasehold"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "client.toml").write_text(text)

    return write


def client(answer, sleep=lambda _: None, others=(), **patience):
    """Return a client; a function answers its requests, and it never waits."""
    kinds = {"away_s": 0.0, "busy_s": 0.0} | patience
    return ServiceClient(
        Connection(server="http://a:1", token="lh_x", others=others),
        patience=Patience(**kinds),
        transport=httpx.MockTransport(answer),
        sleep=sleep,
    )


def problem(status, code="x", **fields):
    body = {"type": f"urn:leasehold:problem:{code}", "title": "T", "status": status} | fields
    return httpx.Response(status, json=body)


@pytest.mark.parametrize("command", [["jobs"], ["submit", "--", "./x"], ["logs", "job-1", "-f"]])
def test_a_token_that_a_starting_scheduler_leaves_is_found(command, serve, leaves_token, leasehold):
    scheduler = serve(auth=True)
    leaves_token(scheduler)
    ran = leasehold(*command)
    assert ran.code in {0, 5}, ran.err
    assert "no token" not in ran.err


def test_the_server_is_named_by_flag_environment_file_or_nobody(config, monkeypatch):
    assert find_connection().server == "http://127.0.0.1:8642"
    config("server = 'https://file:1/'")
    assert find_connection().server == "https://file:1"
    monkeypatch.setenv("LEASEHOLD_SERVER", "http://environment:2")
    assert find_connection().server == "http://environment:2"
    monkeypatch.setenv("LEASEHOLD_SERVER", "http://first:2 http://second:2")
    assert find_connection().servers == ("http://first:2", "http://second:2")
    assert find_connection(server="http://flag:3").server == "http://flag:3"


def test_the_token_is_named_by_flag_environment_file_or_local_state(
    config, monkeypatch, surroundings
):
    assert find_connection().token == ""
    state = surroundings / "state" / "leasehold"
    state.mkdir(parents=True)
    (state / "admin.token").write_text("lh_state\n")
    assert find_connection().token == "lh_state"
    (surroundings / "token").write_text("lh_kept\n")
    config("token_file = '~/token'\nca_file = '~/ca.pem'")
    assert find_connection().token == "lh_kept"
    assert find_connection().ca_file == str(surroundings / "ca.pem")
    config("token = 'lh_file'")
    assert find_connection().token == "lh_file"
    monkeypatch.setenv("LEASEHOLD_TOKEN", "lh_environment")
    assert find_connection().token == "lh_environment"
    (surroundings / "flag").write_text("lh_flag")
    assert find_connection(token_file=str(surroundings / "flag")).token == "lh_flag"
    assert "lh_" not in repr(find_connection())


def test_no_token_goes_to_a_server_that_it_was_not_kept_for(config, surroundings, monkeypatch):
    config("server = 'http://mine:1'\ntoken = 'lh_mine'\nca_file = 'mine.pem'")
    assert find_connection(server="http://mine:1/").token == "lh_mine"
    foreign = find_connection(server="http://other:1")
    assert (foreign.token, foreign.ca_file) == ("", "")
    monkeypatch.setenv("LEASEHOLD_STATE_DIR", str(surroundings))
    (surroundings / "admin.token").write_text("lh_state")
    assert find_connection(server="http://other:1").token == ""
    assert find_connection(server="http://localhost:1").token == "lh_state"


def test_the_token_of_a_file_goes_to_all_servers_in_it_and_to_no_other(config, surroundings):
    config("server = 'http://a:1 http://b:1/'\ntoken = 'lh_mine'")
    for good in (None, "http://b:1", "http://B:1 http://a:1"):
        assert find_connection(server=good).token == "lh_mine"
    assert find_connection(server="http://a:1 http://c:1").token == ""
    state = surroundings / "state" / "leasehold"
    state.mkdir(parents=True)
    (state / "admin.token").write_text("lh_state\n")
    assert find_connection(server="http://127.0.0.1:1 http://localhost:2").token == "lh_state"
    assert find_connection(server="http://127.0.0.1:1 http://c:1").token == ""


@pytest.mark.parametrize(("text", "said"), [
    ("server = 3", "'server' is 3"),
    ("colour = 'red'", "unknown key 'colour'"),
    ("server =", "client.toml"),
    ("server = ' '", "give http://HOST:PORT"),
    ("server = 'ftp://x'", "give http://HOST:PORT"),
    ("server = 'http://u:p@x'", "holds a password"),
    ("token = 'two words'", "holds no token"),
    ("token_file = 'nowhere'", "cannot be read"),
])  # fmt: skip
def test_a_bad_client_file_is_refused_with_its_name(text, said, config):
    config(text)
    with pytest.raises(InputError, match=said):
        find_connection()


def test_a_scheduler_of_this_user_is_found_wherever_it_listens(surroundings, config):
    folder = StateDir(surroundings / "state" / "leasehold")
    assert find_connection().server == "http://127.0.0.1:8642", "it does not listen yet"
    folder.note_address("http://10.0.0.7:8701")
    (folder.path / "admin.token").write_text("lh_state\n")
    found = find_connection()
    assert (found.server, found.token) == ("http://10.0.0.7:8701", "lh_state")
    assert found.origin == str(folder.path)
    assert find_connection(server="http://10.0.0.7:1").token == "", "that is another one"
    with pytest.raises(InputError, match=rf"process {os.getpid()}, http://10.0.0.7:8701"):
        StateDir(folder.path)
    config("server = 'https://file:1'")
    assert find_connection().server == "https://file:1"
    config("")
    folder.close()
    assert find_connection().server == "http://127.0.0.1:8642"


def test_a_scheduler_that_was_killed_is_not_asked(surroundings):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = surroundings / "state" / "leasehold"
    folder.mkdir(parents=True)
    for text in (f"{ended.pid}\nhttp://127.0.0.1:8701\n", f"{os.getpid()}\n", "", "x y\n"):
        (folder / "leasehold.lock").write_text(text)
        assert find_connection().server == "http://127.0.0.1:8642"


def test_a_client_file_that_was_named_has_to_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("LEASEHOLD_CLIENT_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="is not there"):
        find_connection()


def test_an_absent_scheduler_is_one_line_and_exit_code_3(leasehold):
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))  # bound and not listening: no other process takes it
        url = f"http://127.0.0.1:{port.getsockname()[1]}"
        ran = leasehold("jobs", "--server", url, "--retry-for", "0.2s")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == (
        f"leasehold: no scheduler answers at {url}: start one with `leasehold up` (it takes "
        "some seconds) or name another with --server\n"
    )


def test_tokens_that_do_not_suffice_end_with_4(serve, leasehold, monkeypatch, tmp_path):
    scheduler = serve(auth=True)
    ran = leasehold("jobs")
    assert ran.code == 4
    assert "needs a token, and none was given; give one with --token-file FILE" in ran.err
    assert "Authorization" not in ran.err
    monkeypatch.setenv("LEASEHOLD_TOKEN", "lh_wrong")
    ran = leasehold("jobs")
    assert ran.code == 4
    assert "does not know the token: it is wrong, expired or revoked; give another" in ran.err
    assert "Authorization" not in ran.err
    assert "lh_wrong" not in ran.err
    monkeypatch.setenv("LEASEHOLD_TOKEN", scheduler.token("viewer"))
    assert leasehold("jobs").code == 0
    ran = leasehold("submit", "--", "./x")
    assert ran.code == 4
    assert "needs role user" in ran.err
    assert leasehold("token").code == 4
    (tmp_path / "token").write_text(scheduler.token("user", projects=("a",)))
    ran = leasehold("submit", "-p", "b", "--token-file", str(tmp_path / "token"), "--", "./x")
    assert ran.code == 4


def test_a_server_that_is_not_ours_is_told_apart(leasehold, monkeypatch):
    monkeypatch.setenv("LEASEHOLD_SERVER", "http://a:1")
    for answer, said in (
        (httpx.Response(200, text="<html>"), "no JSON"),
        (httpx.Response(404, text="<html>"), "is that a Leasehold server"),
        (httpx.Response(500, json=[]), "is that a Leasehold server"),
    ):
        with pytest.raises(AnswerError, match=said):
            client(lambda _, answer=answer: answer).call("GET", "/jobs")


@pytest.mark.parametrize(("status", "kind"), [
    (400, InputError), (401, NotPermittedError), (403, NotPermittedError), (404, NotFoundError),
    (409, ConflictError), (413, InputError), (422, InputError), (429, UnreachableError),
    (503, UnreachableError), (500, AnswerError), (405, AnswerError),
])  # fmt: skip
def test_every_status_is_an_error_of_its_kind(status, kind):
    with pytest.raises(kind, match="why"):
        client(lambda _: problem(status, detail="why")).call("GET", "/x")


def test_bad_fields_are_listed_shortened_and_counted():
    errors = [{"field": f"f{i}", "value": "x" * 200, "problem": "p"} for i in range(52)]
    errors[0] = {"field": "", "value": None, "problem": "is needed"}
    with pytest.raises(InputError) as caught:
        client(lambda _: problem(422, errors=errors)).call("GET", "/x")
    notes = caught.value.__notes__
    assert notes[0] == "the request: is needed"
    assert len(notes[1]) < 100
    assert notes[-1] == "... and 2 more"


def test_a_busy_scheduler_is_asked_again_as_it_wishes(monkeypatch):
    answers, waits = [429, 503, 502, 200], []

    def answer(_):
        status = answers.pop(0)
        if status == 200:
            return httpx.Response(200, json={})
        return httpx.Response(status, headers={"Retry-After": "2"} if status == 429 else {})

    service = client(answer, waits.append, busy_s=60.0)
    assert service.call("GET", "/x") == {}
    assert 2.0 < waits[0] <= 2.1
    assert 0.0 < waits[1] < waits[2] < 0.5


def test_a_retry_after_that_is_a_date_is_no_reason_to_fail():
    answers = iter([
        httpx.Response(503, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        httpx.Response(204),
    ])  # fmt: skip
    assert client(lambda _: next(answers), busy_s=9.0).call("GET", "/x") is None


def test_patience_ends():
    with pytest.raises(UnreachableError, match="why"):
        client(lambda _: problem(503, detail="why"), busy_s=0.0).call("GET", "/x")


def test_a_write_that_may_not_be_repeated_is_repeated_only_if_it_was_surely_not_done():
    tries = []

    def breaks(_):
        tries.append(1)
        raise httpx.ReadError("gone")

    with pytest.raises(UnreachableError) as caught:
        client(breaks, away_s=9.0).call("POST", "/tokens", {}, repeatable=False)
    assert len(tries) == 1
    assert "unknown" in caught.value.__notes__[0]
    with pytest.raises(UnreachableError):
        client(lambda _: problem(502), busy_s=9.0).call("POST", "/tokens", {}, repeatable=False)
    answers = iter([problem(503), httpx.Response(200, json=1)])
    assert client(lambda _: next(answers), busy_s=9.0).call("POST", "/x", repeatable=False) == 1

    def breaks_once(_):
        tries.append(1)
        if len(tries) == 2:
            raise httpx.ReadError("gone")
        return httpx.Response(200, json=1)

    assert client(breaks_once, away_s=9.0).call("POST", "/jobs", {}) == 1
    assert len(tries) == 3


def test_a_scheduler_that_starts_is_waited_for_longer_and_that_is_said(capsys):
    answers = iter(
        [*[problem(503, "starting", detail="it compiles")] * 40, httpx.Response(200, json=1)]
    )
    assert client(lambda _: next(answers), busy_s=1e-9).call("GET", "/x") == 1
    said = capsys.readouterr().err
    assert said == "leasehold: it compiles; trying again until it is back (Ctrl-C ends)\n"
    with pytest.raises(LeaseholdError, match="it compiles"):  # completion waits for nothing
        client(lambda _: problem(503, "starting", detail="it compiles")).call("GET", "/x")


def test_a_repeated_submission_is_the_same_request(scheduler, leasehold, monkeypatch):
    from leasehold.client.exchange import Exchange

    send = Exchange._persist

    async def lose_an_answer(self, work):
        await send(self, work)
        return await send(self, work)

    monkeypatch.setattr(Exchange, "_persist", lose_an_answer)
    ran = leasehold("submit", "--deadline", "2h", "--", "./x")
    assert (ran.code, ran.out) == (0, "job-1\n")
    assert scheduler.service.store.job("job-2") is None


def test_a_standby_sends_writes_to_the_leader_with_their_token():
    seen = []

    def answer(request):
        seen.append((str(request.url), request.headers.get("Authorization"), request.content))
        if request.url.host == "a":
            return httpx.Response(307, headers={"Location": "http://b:2/v1/x?q=1"})
        return httpx.Response(200, json=1)

    assert client(answer).call("POST", "/x", {"k": 1}, params={"q": 1}) == 1
    assert seen[1] == ("http://b:2/v1/x?q=1", "Bearer lh_x", b'{"k":1}')
    for bad in ("ftp://b", ""):
        with pytest.raises(AnswerError, match="which cannot be used"):
            client(lambda _, bad=bad: httpx.Response(307, headers={"Location": bad})).call(
                "POST", "/x"
            )


@pytest.mark.parametrize("kind", [httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadError])
def test_standbys_are_asked_in_turn_if_a_server_does_not_answer(kind):
    asked = []

    def answer(request):
        asked.append((request.url.host, request.headers["Authorization"]))
        if request.url.host != "c":
            raise kind("away")
        return httpx.Response(200, json={"host": "c"})

    several = client(answer, others=("http://b:1", "http://c:1"))
    assert several.call("GET", "/v1/x") == {"host": "c"}
    assert asked == [(host, "Bearer lh_x") for host in "abc"]
    several.call("GET", "/v1/x")
    assert asked[3:] == [("c", "Bearer lh_x")], "the one that answered is asked first"


def test_a_stream_goes_on_at_another_server():
    asked = []

    def answer(request):
        if "event-stream" not in request.headers["Accept"]:
            return httpx.Response(200, json={"events": [], "last_event_id": 0})
        asked.append(request.url.host)
        if len(asked) == 1:
            raise httpx.ReadError("reset")
        lines = b'id: 1\nevent: x\ndata: {"event_id": 1, "kind": "x"}\n\n'
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=lines)

    several = client(answer, others=("http://b:1",), away_s=5.0)
    assert next(several.events(after=0))["kind"] == "x"
    assert asked == ["a", "b"]


def test_if_no_server_answers_each_was_asked_and_is_named():
    asked = []

    def answer(request):
        asked.append(request.url.host)
        raise httpx.ConnectError("refused")

    with pytest.raises(UnreachableError, match="at http://a:1 or http://b:1: name another"):
        client(answer, others=("http://b:1",)).call("GET", "/v1/x")
    assert asked == ["a", "b"]


def test_standbys_that_point_at_each_other_end_in_an_error():
    def answer(_):
        response = problem(307, detail="a standby")
        response.headers["Location"] = "http://a:1/v1/x"
        return response

    with pytest.raises(UnreachableError, match="a standby"):
        client(answer).call("POST", "/x")


@pytest.mark.parametrize(("failure", "said"), [
    (httpx.ReadTimeout("slow"), "has not answered for 30 s"),
    (httpx.ReadError("reset"), "broke off"),
    (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] x"), "--ca-file"),
])  # fmt: skip
def test_what_kept_the_answer_away_is_said(failure, said):
    def answer(_):
        raise failure

    with pytest.raises(UnreachableError, match=said):
        client(answer).call("GET", "/x")


def test_certificates_that_are_none_are_refused(tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    for file in (tmp_path / "ca.pem", tmp_path / "none.pem"):
        service = ServiceClient(Connection(server="https://a:1", ca_file=str(file)))
        with pytest.raises(InputError, match="cannot be used"):
            service.call("GET", "/x")


def test_another_release_is_remarked_on_once(serve, leasehold):
    scheduler = serve()
    assert leasehold("job", "x").err.count("version") == 0
    scheduler.stop()
    scheduler.service.version = "7.3.1"
    scheduler.start()
    assert leasehold("top", "--once").err.count("version mismatch: scheduler 7.3.1, client") == 1


def test_a_stream_that_is_none_is_refused():
    html = client(lambda _: httpx.Response(200, text="<html>"))
    with pytest.raises(AnswerError, match="no stream"):
        next(events(html))
    for data in ("x", "3"):
        broken = client(lambda _, data=data: stream(f"data: {data}\n\n"))
        with pytest.raises(AnswerError, match="an event is no"):
            next(events(broken))


def test_a_stream_that_keeps_breaking_says_so_once(capsys):
    tries = []

    def answer(_):
        tries.append(1)
        if len(tries) < 4:
            raise httpx.ConnectError("gone")
        return stream('id: 1\ndata: {"event_id": 1}\n\n')

    assert next(events(client(answer))) == {"event_id": 1}
    assert capsys.readouterr().err.count("trying again") == 1


def events(service):
    """Return the lines of history behind the first."""
    return service._each(service._inner._events_from({}, 0))


def stream(text):
    return httpx.Response(200, text=text, headers={"Content-Type": "text/event-stream"})


def _complete(words: str, url: str, *, wanted: str = "") -> str:
    """Return the completions in the shell; asks again if a busy machine was too slow."""
    for _ in range(20):
        if wanted in (found := _complete_once(words, url)):
            break
    return found


def _complete_once(words: str, url: str) -> str:
    env = os.environ | {
        "_LEASEHOLD_COMPLETE": "complete_bash",
        "COMP_WORDS": f"leasehold {words}",
        "COMP_CWORD": str(len(words.split(" "))),
        "LEASEHOLD_SERVER": url,
    }
    command = [sys.executable, "-c", "from leasehold.cli.main import main; main()"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert ran.stderr == ""
    return ran.stdout


def test_the_shell_completes_jobs_nodes_policies_and_projects(scheduler, leasehold):
    assert leasehold("submit", "--", "./x").code == 0
    assert leasehold("project", "set", "vision", "--weight", "2").code == 0
    for words, name in (("cancel jo", "job-1"), ("drain al", "alpha"), ("project set v", "vision")):
        assert _complete(words, scheduler.url, wanted=name).split() == [name]
    name = "max_min_fairness"
    assert name in _complete("policy set max_min", scheduler.url, wanted=name).split()
    words = f"job --server {scheduler.url} j"
    assert _complete(words, "http://127.0.0.1:9", wanted="job-1").split() == ["job-1"]


def test_the_shell_completes_nothing_where_nobody_answers():
    assert _complete("cancel jo", "http://127.0.0.1:9").strip() == ""


def test_starting_imports_no_slow_library():
    code = (
        "import sys; sys.argv = ['leasehold', 'jobs', '--server', 'http://127.0.0.1:9']\n"
        "from leasehold.cli.main import main\n"
        "code = main()\n"
        "slow = {'numpy', 'scipy', 'cvxpy', 'numba', 'yaml', 'fastapi', 'sqlalchemy',"
        "'orjson', 'simulator', 'policies'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else code)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr


def _interrupted(process: subprocess.Popen[bytes]) -> bool:
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(3)
    return process.poll() is not None


def test_ctrl_c_ends_with_130(scheduler, leasehold, until):
    assert leasehold("submit", "--", "./x").code == 0
    for command in (["watch", "job-1"], ["logs", "-f", "job-1"], ["jobs", "--watch"]):
        # Beneath a shell that runs the tests in the background all processes ignore SIGINT.
        heeding = ["env", "--default-signal=INT", sys.executable]
        process = subprocess.Popen(
            [*heeding, "-m", "leasehold", *command, "--server", scheduler.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        asked = scheduler.requests
        until(lambda asked=asked: scheduler.requests > asked, timeout_s=60)
        # As a person does: Python loses one that comes while a module is imported.
        until(lambda process=process: _interrupted(process), timeout_s=60)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, (command, err)
        assert b"Traceback" not in err


def test_a_leader_that_died_is_waited_for_where_a_standby_names_it(leasehold):
    """The standby answers; the redirected leader does not, until a standby takes over."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    asked = []
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # bound and not listening
        gone = f"http://127.0.0.1:{dead.getsockname()[1]}"

        class Standby(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(307 if len(asked) < 3 else 200)
                self.send_header("Location", gone + self.path)
                self.send_header("Content-Type", "application/json")
                body = b"" if len(asked) < 3 else b'{"nodes": []}'
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Standby)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            ran = leasehold("nodes", "--server", url)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
    assert ran.code == 0, ran.err
    assert len(asked) == 3


def test_numbers_that_are_none_are_one_line(serve, leasehold):
    serve()
    ran = leasehold("submit", "--weight", "nan", "--", "./train")
    assert ran.code == 2
    assert "--weight is nan; give a finite number" in ran.err
    assert "Traceback" not in ran.err
