"""Commands in pods: the web socket of the API server's exec, spoken by a server of the test's."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import WSMsgType, web
from kubernetes.aio import client as package

from agent.backend import ENDED_WITH_JOB
from agent.client_settings import ClientSettings
from agent.kubernetes.client import KubernetesClient
from agent.kubernetes.pods import exec as pod_exec
from agent.kubernetes.pods.exec import (
    CLOSING,
    KEPT_BYTES,
    NOT_FOUND,
    NOT_RUN,
    PodCommand,
    exit_code,
)
from scheduler.errors import InputError

OUT, ERR, STATUS = b"\1", b"\2", b"\3"
DONE = json.dumps({"status": "Success"}).encode()
NOT_THERE = 'exec: "x": executable file not found in $PATH'
ABSENT = json.dumps({"status": "Failure", "message": NOT_THERE}).encode()
REFUSED = json.dumps({"status": "Failure", "message": 'exec "x": permission denied'}).encode()


def failed(code):
    causes = [{"reason": "ExitCode", "message": str(code)}]
    told = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(told).encode()


def play(serve, scene, *, protocols=(CLOSING,), status=101):
    """Run a scene with a client of a server that serves sockets so."""
    asked = []

    async def handle(request):
        asked.append(request)
        if status != 101:
            return web.json_response({"message": "no"}, status=status)
        socket = web.WebSocketResponse(protocols=protocols)
        await socket.prepare(request)
        await serve(socket)
        await socket.close()
        return socket

    async def run():
        app = web.Application()
        app.router.add_get("/{rest:.*}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        api = package.ApiClient(package.Configuration(host=f"http://127.0.0.1:{port}"))
        client = KubernetesClient(api, settings=ClientSettings(request_s=20))
        try:
            async with asyncio.timeout(60):
                return await scene(client)
        finally:
            await client.close()
            await runner.cleanup()

    return asyncio.run(run()), asked


async def begin(client, *command, reads=False, stopped=()):
    return await PodCommand.begin(
        client, "jobs", "pod-1", command or ("x",), reads=reads, stopping=lambda: bool(stopped)
    )


async def everything(command, name):
    found = b""
    while data := await command.outputs[name].read(65536):
        found += data
    return found


def test_a_command_prints_reads_and_ends():
    async def serve(socket):
        read = b""
        async for message in socket:
            if message.data == bytes([255, 0]):
                break
            assert (message.type, message.data[0]) == (WSMsgType.BINARY, 0)
            read += message.data[1:]
        await socket.send_bytes(OUT)  # kubelets begin with nothing
        await socket.send_bytes(OUT + read)
        await socket.send_bytes(ERR + b"read all")
        await socket.send_bytes(STATUS + failed(3))

    data = bytes(range(256)) * 500

    async def scene(client):
        command = await begin(client, "cat", "-", reads=True)
        assert command.returncode is None
        await command.feed(data)
        out, err = await everything(command, "out"), await everything(command, "err")
        return out, err, await command.wait(), command.returncode

    told, (request,) = play(serve, scene)
    assert told == (data, b"read all", 3, 3)
    assert request.path == "/api/v1/namespaces/jobs/pods/pod-1/exec"
    assert request.query.getall("command") == ["cat", "-"]
    for name in ("stdin", "stdout", "stderr"):
        assert request.query.getall(name) == ["true"]
    assert request.query["container"] == "job"


def test_one_that_reads_nothing_gets_no_input():
    async def serve(socket):
        await socket.send_bytes(STATUS + DONE)

    async def scene(client):
        command = await begin(client)
        await command.feed(b"")
        return await command.wait(), await everything(command, "out")

    for protocols in ((CLOSING,), ("v4.channel.k8s.io",)):
        told, (request,) = play(serve, scene, protocols=protocols)
        assert told == (0, b"")
        assert "stdin" not in request.query


def test_an_older_server_cannot_tell_that_the_input_has_ended_and_gets_none():
    async def serve(socket):
        await socket.receive()

    async def scene(client):
        with pytest.raises(InputError, match="too old to close the input of a command"):
            await begin(client, reads=True)

    play(serve, scene, protocols=("v4.channel.k8s.io",))


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (403, InputError, "agent.exec=true"),
        (401, InputError, "agent.exec=true"),
        (404, InputError, "the job's pod has left"),
        (500, OSError, "did not begin it"),
        (400, OSError, "did not begin it"),
    ],
)
def test_a_refusal_says_what_to_do(status, kind, said):
    async def scene(client):
        with pytest.raises(kind, match=said):
            await begin(client)

    play(None, scene, status=status)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (DONE, 0, ""),
        (failed(3), 3, ""),
        (failed(300), 300 & 255, ""),
        (ABSENT, NOT_FOUND, "not found"),
        (REFUSED, NOT_RUN, "permission denied"),
        (b"{}", NOT_RUN, "could not be run"),
        (b"[]", NOT_RUN, "did not say how"),
        (b"nonsense", NOT_RUN, "did not say how"),
        (failed("x"), NOT_RUN, "did not say how"),
    ],
)
def test_how_it_ended_is_read_from_whatever_is_said(status, code, said):
    found, problem = exit_code(status)
    assert found == code
    assert said in problem
    assert bool(problem) == bool(said)


def test_a_program_that_is_not_there_is_told_as_shells_do():
    async def serve(socket):
        await socket.send_bytes(STATUS + ABSENT)

    async def scene(client):
        command = await begin(client)
        return await everything(command, "err"), await command.wait()

    (err, code), _ = play(serve, scene)
    assert code == NOT_FOUND
    assert err.startswith(b"leasehold: exec")


def test_who_prints_more_than_is_read_waits():
    piece, pieces = b"a" * 65536, 200
    sent = 0

    async def serve(socket):
        nonlocal sent
        for _ in range(pieces):
            await socket.send_bytes(OUT + piece)
            sent += 1
        await socket.send_bytes(STATUS + DONE)

    async def scene(client):
        command = await begin(client)
        before = -1
        while before != sent:  # until nothing more is taken
            before = sent
            await asyncio.sleep(0.3)
        kept = len(command.outputs["out"]._kept)
        return before, kept, len(await everything(command, "out")), await command.wait()

    (before, kept, total, code), _ = play(serve, scene)
    assert before < pieces, "it was all taken, though nobody read"
    assert kept < KEPT_BYTES + len(piece) + 1
    assert (total, code) == (len(piece) * pieces, 0)


def test_one_that_is_ended_is_left_and_its_readers_know():
    left = asyncio.Event()

    async def serve(socket):
        async for _ in socket:
            pass
        left.set()

    async def scene(client):
        command = await begin(client)
        reading = asyncio.create_task(everything(command, "out"))
        await asyncio.sleep(0)
        await command.end()
        await command.end()
        await left.wait()
        return await reading, await command.wait()

    assert play(serve, scene)[0] == (b"", NOT_RUN)


def test_a_connection_that_breaks_off_ends_it():
    async def serve(socket):
        await socket.send_bytes(OUT + b"some")
        socket._req.transport.abort()

    async def scene(client):
        command = await begin(client)
        return await everything(command, "err"), await command.wait()

    (err, code), _ = play(serve, scene)
    assert b"broke off" in err
    assert code == NOT_RUN


@pytest.mark.parametrize("ends", [True, False])
def test_one_that_is_killed_with_its_pod_says_so_once_that_is_known(ends, monkeypatch):
    monkeypatch.setattr(pod_exec, "TOLD_S", 60.0 if ends else 0.3)

    async def serve(socket):
        await socket.send_bytes(STATUS + failed(137))

    async def scene(client):
        stopped = []
        command = await begin(client, stopped=stopped)
        code = await command.wait()
        told = asyncio.create_task(command.cut_short())
        await asyncio.sleep(0.2)  # the command's end is known before the pod's
        assert told.done() is False
        stopped += [True] * ends
        return code, await told

    found, _ = play(serve, scene)
    assert found == (137, ENDED_WITH_JOB if ends else "")
