"""The pod of a token, by an API server with answers of the test."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from leasehold.daemon.token_review import TokenReviewer
from scheduler.errors import InputError

ACCOUNT = "system:serviceaccount:gpus:agent"
NODE = "authentication.kubernetes.io/node-name"


def status(*, authenticated=True, audiences=("leasehold",), user=ACCOUNT, nodes=("alpha",)):
    extra = {} if nodes is None else {NODE: list(nodes)}
    return {
        "authenticated": authenticated,
        "audiences": list(audiences),
        "user": {"username": user, "extra": extra},
    }


class ApiServer(ThreadingHTTPServer):
    """Answers every review with ``answer`` and keeps its requests."""

    answer: object = None
    code = 201

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        answer = self.server.answer
        sent = answer if isinstance(answer, bytes) else json.dumps({"status": answer}).encode()
        self.send_response(self.server.code)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Authorization"], None))
        sent = json.dumps(self.server.answer).encode()
        self.send_response(self.server.code)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_):
        pass


@pytest.fixture
def api_server():
    server = ApiServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def node_of(api_server, tmp_path):
    (tmp_path / "token").write_text("own\n")
    reviewer = TokenReviewer(
        account="gpus/agent", audience="leasehold", api_server=api_server.url, credentials=tmp_path
    )
    return lambda token="a.b.c": asyncio.run(reviewer.node_of(token))


def test_the_api_server_is_asked_for_our_audience_with_our_own_token(api_server, node_of):
    api_server.answer = status()
    assert node_of("a.b.c") == "alpha"
    ((path, bearer, body),) = api_server.asked
    assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert bearer == "Bearer own"
    assert body["spec"] == {"token": "a.b.c", "audiences": ["leasehold"]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"authenticated": False, "error": "token has expired"}, "token has expired"),
        (status(audiences=["https://kubernetes.default.svc"]), "another audience"),
        (status(user="system:serviceaccount:gpus:other"), "gpus:other lets no agent in"),
        (status(user="system:serviceaccount:jobs:agent"), "jobs:agent lets no agent in"),
        (status(nodes=None), "names no node"),
        (status(nodes=("alpha", "beta")), "names no node"),
        (None, "refused by Kubernetes"),
    ],
)
def test_everything_else_lets_nobody_in_and_the_log_says_why(
    api_server, node_of, caplog, answer, said
):
    api_server.answer = answer
    assert node_of() is None
    assert said in caplog.text


def test_an_api_server_that_refuses_is_told_from_a_refused_token(api_server, node_of):
    api_server.code = 403
    with pytest.raises(OSError, match="answers 403"):
        node_of()
    api_server.code, api_server.answer = 200, b"<html>"
    with pytest.raises(OSError, match="not JSON"):
        node_of()


@pytest.fixture
def approved_of(api_server, tmp_path):
    (tmp_path / "token").write_text("own\n")
    reviewer = TokenReviewer(
        account="gpus/agent",
        audience="leasehold",
        api_server=api_server.url,
        credentials=tmp_path,
        approved_label="workers.node-restriction.kubernetes.io",
    )
    return lambda node="alpha": asyncio.run(reviewer.approved_of(node))


def test_labels_say_which_workers_a_node_may_have(api_server, approved_of, caplog):
    prefix = "workers.node-restriction.kubernetes.io"
    labels = {f"{prefix}/v100": "4", f"{prefix}/a100-80g": "0", f"{prefix}/k80": "many"}
    api_server.answer = {"metadata": {"labels": labels | {"v100": "8", "other/v100": "9"}}}
    assert approved_of() == {"v100": 4, "a100-80g": 0}
    assert api_server.asked == [("/api/v1/nodes/alpha", "Bearer own", None)]
    assert "is 'many', and no count" in caplog.text


def test_without_such_a_label_nothing_is_approved(api_server, approved_of, caplog):
    for answer in ({}, {"metadata": {}}, {"metadata": {"labels": {"a": "b"}}}):
        api_server.answer = answer
        assert approved_of("n/../x") == {}
    assert {path for path, *_ in api_server.asked} == {"/api/v1/nodes/n%2F..%2Fx"}
    assert "names the workers that it may have" in caplog.text


def test_labels_that_cannot_be_read_are_told_from_none(api_server, approved_of):
    api_server.code, api_server.answer = 403, {}
    with pytest.raises(OSError, match="answers 403"):
        approved_of()


@pytest.mark.parametrize("account", ["agent", "/agent", "gpus/", "a/b/c", ""])
def test_an_account_is_a_namespace_and_a_name(account):
    with pytest.raises(InputError, match="NAMESPACE/NAME"):
        TokenReviewer(account=account, audience="x", api_server="http://localhost")


def test_in_a_cluster_the_api_server_is_where_kubernetes_says():
    given = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    made = TokenReviewer.in_cluster(account="gpus/agent", audience="x", environment=given)
    assert made._api_server == "https://[fd00::1]:6443"
