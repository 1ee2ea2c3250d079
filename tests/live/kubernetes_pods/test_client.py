"""The client of the API server: typed errors, pages, retries, and answers that break off."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import yaml
from kubernetes.aio import client as package

from agent.client_settings import ClientSettings
from agent.kubernetes import client as kubernetes_client
from agent.kubernetes.client import (
    AdmissionRefusedError,
    ExistsError,
    GoneError,
    KubernetesClient,
    KubernetesError,
    KubernetesUnreachableError,
    MissingError,
    PermissionDeniedError,
    QuotaExceededError,
    connect_client,
)
from scheduler.errors import InputError

QUICK = ClientSettings(request_s=2, connect_s=1, watch_s=2, retries=1, retry_least_s=0.01)


def pod(name):
    return {
        "metadata": {"name": name, "namespace": "jobs", "labels": {}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}},
    }


@pytest.mark.parametrize(
    ("code", "reason", "message", "kind", "word"),
    [
        (401, "Unauthorized", "Unauthorized", PermissionDeniedError, "Unauthorized"),
        (403, "Forbidden", 'User "a" cannot get', PermissionDeniedError, "Forbidden"),
        (403, "Forbidden", "", PermissionDeniedError, "Forbidden"),
        (403, "Forbidden", "exceeded quota: few", QuotaExceededError, "QuotaExceeded"),
        (403, "Forbidden", 'violates PodSecurity "x"', AdmissionRefusedError, "PodSecurity"),
        (400, "", "admission webhook denied the request", AdmissionRefusedError, "AdmissionDenied"),
        (422, "", "spec is wrong", AdmissionRefusedError, "Invalid"),
        (404, "NotFound", "no such node", MissingError, "NotFound"),
        (409, "AlreadyExists", "there is one", ExistsError, "AlreadyExists"),
        (409, "Conflict", "changed meanwhile", KubernetesError, "Conflict"),
        (410, "Expired", "too old", GoneError, "Expired"),
        (418, "Teapot", "short and stout", KubernetesError, "Teapot"),
    ],
)
def test_each_refusal_has_its_type_and_word(play, failure, code, reason, message, kind, word):  # noqa: PLR0917 - fixtures and a case
    async def scene(stage):
        stage.api.fault("GET", "/nodes/n9", failure(code, reason, message))
        with pytest.raises(KubernetesError) as caught:
            await stage.client.node("n9")
        assert type(caught.value) is kind
        assert (caught.value.status, caught.value.reason) == (code, word)
        assert f"GET /api/v1/nodes/n9: {message or 'no message'} ({code}" in str(caught.value)

    play(scene)


def test_a_server_that_is_busy_is_asked_again_and_not_sooner_than_it_says(play, failure):
    async def scene(stage):
        busy = failure(429, "TooManyRequests", "slow down", **{"Retry-After": "1"})
        stage.client.settings = ClientSettings(retries=1, retry_least_s=0.01, retry_most_s=0.2)
        stage.api.fault("GET", "/nodes/n1", busy)
        pause_s, pauses = stage.client._pause_s, []
        stage.client._pause_s = lambda *told: pauses.append(pause_s(*told)) or pauses[-1]
        assert (await stage.client.node("n1"))["metadata"]["name"] == "n1"
        # It says a second; the client waits no longer than the settings allow.
        assert pauses == [0.2]
        stage.api.fault("GET", "/nodes/n1", busy, times=2)
        with pytest.raises(KubernetesUnreachableError, match="slow down"):
            await stage.client.node("n1")

    play(scene, node_every_s=60.0)


def test_an_answer_that_is_no_status_is_quoted(play):
    from starlette.responses import PlainTextResponse

    async def scene(stage):
        stage.api.fault("GET", "/nodes/n9", PlainTextResponse("<html>proxy</html>", 418))
        with pytest.raises(KubernetesError, match="<html>proxy"):
            await stage.client.node("n9")
        stage.api.fault("GET", "/nodes/n9", PlainTextResponse("[1]", 404))
        with pytest.raises(MissingError, match="no message"):
            await stage.client.node("n9")
        stage.api.fault("GET", "/nodes/n9", PlainTextResponse("[1]"))
        assert await stage.client.node("n9") == {}

    play(scene)


def test_long_lists_come_in_pages(play, monkeypatch):
    monkeypatch.setattr(kubernetes_client, "PAGE", 2)

    async def scene(stage):
        for number in range(5):
            await stage.client.create_object("pods", pod(f"p{number}"))
        found, version = await stage.client.pods(namespace="jobs")
        assert [item["metadata"]["name"] for item in found] == [f"p{n}" for n in range(5)]
        assert int(version) >= 105
        lists = [r for r in stage.api.requests if r[1].endswith("/namespaces/jobs/pods")]
        assert len([r for r in lists if r[0] == "GET"]) == 3

    play(scene)


def test_deleting_what_is_gone_or_has_been_replaced_is_as_good(play, failure):
    async def scene(stage):
        delete = stage.client.delete_pod
        assert not await delete("jobs", "nobody", uid="u", grace_s=1)
        made = await stage.client.create_object("pods", pod("p"))
        assert not await delete("jobs", "p", uid="of another", grace_s=1)
        assert await delete("jobs", "p", uid=made["metadata"]["uid"], grace_s=1)
        stage.api.fault("DELETE", "/pods/p", failure(403, "Forbidden", 'User "a" cannot delete'))
        with pytest.raises(PermissionDeniedError):
            await delete("jobs", "p", uid="u", grace_s=1)

    play(scene)


def test_a_watch_from_a_version_that_is_too_old_says_so(play):
    async def scene(stage):
        stage.api.forget_history()
        with pytest.raises(GoneError, match="too old"):
            async for _ in stage.client.watch_pods(version="1"):
                pass

    play(scene)


@contextlib.asynccontextmanager
async def answering(*pieces):
    """Let a server send some bytes to each client and hang up."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    configuration = package.Configuration(host=f"http://{host}:{port}")
    client = KubernetesClient(package.ApiClient(configuration), settings=QUICK)
    try:
        yield client
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize("sent", [HEAD + b'{"a": 1', HEAD.replace(b"100", b"4") + b"what"])
def test_an_answer_that_is_cut_off_or_is_no_json_may_be_asked_for_again(sent):
    async def scene():
        async with answering(sent) as client:
            with pytest.raises(KubernetesUnreachableError, match="was cut off"):
                await client.node("n1")

    asyncio.run(scene())


def test_a_stream_that_breaks_off_tells_what_came_and_then_so():
    lines = HEAD + b"first\n\nsec"

    async def scene():
        async with answering(lines) as client:
            stream = client.follow_log("jobs", "p", container="job", limit_bytes=99)
            assert await anext(stream) == b"first"
            with pytest.raises(KubernetesUnreachableError, match="broke off"):
                await anext(stream)

    asyncio.run(scene())


def test_the_last_line_of_a_stream_needs_no_end():
    whole = HEAD.replace(b"100", b"11") + b"first\nagain"

    async def scene():
        async with answering(whole) as client:
            stream = client.follow_log("jobs", "p", container="job", limit_bytes=99)
            assert [line async for line in stream] == [b"first", b"again"]

    asyncio.run(scene())


def test_nobody_there_is_told_in_words():
    async def scene():
        client = KubernetesClient(
            package.ApiClient(package.Configuration(host="http://127.0.0.1:9")), settings=QUICK
        )
        with pytest.raises(KubernetesUnreachableError, match="no answer") as caught:
            await client.node("n1")
        assert caught.value.status == 0
        assert client.requests == 2
        await client.close()

    asyncio.run(scene())


def kubeconfig(path, url):
    cluster = {"name": "c", "cluster": {"server": url}}
    user = {"name": "u", "user": {"token": "t0ken"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    content = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user]}
    path.write_text(yaml.safe_dump(content | {"contexts": [context], "current-context": "x"}))
    return path


def test_a_file_says_how_to_reach_the_cluster(play, tmp_path):
    async def scene(stage):
        client = await connect_client(kubeconfig=kubeconfig(tmp_path / "config", stage.url))
        assert (await client.node("n1"))["metadata"]["name"] == "n1"
        await client.close()

    play(scene)


def test_without_a_usable_account_one_is_told_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"in .*nothing.*--kubeconfig"):
        asyncio.run(connect_client(kubeconfig=tmp_path / "nothing"))
    bad = kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="no usable account"):
        asyncio.run(connect_client(kubeconfig=bad, context="another"))


def test_in_a_pod_its_own_account_is_used(tmp_path, monkeypatch):
    from kubernetes.aio.config import incluster_config

    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    (tmp_path / "token").write_text("t0ken")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    # The address of the API server is missing: the message names the pod's account.
    with pytest.raises(InputError, match="in this pod"):
        asyncio.run(connect_client())
