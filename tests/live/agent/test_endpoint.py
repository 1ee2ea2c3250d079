"""The job-facing endpoint, line by line."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import socket
import warnings

import pytest

from agent.clock import lease_clock_s
from agent.endpoint.endpoint import LEASE_LINES, MOST_REFUSED, Endpoint, Tenant
from agent.endpoint.peers import MOST_STRANGERS, Peers, room_for_connections
from agent.loop import _endure
from leasehold_testing.ports import free_ports
from scheduler.errors import InputError
from scheduler.protocol.bounds import LINE_BYTES


def _serve(node, talk):
    async def main():
        endpoint = Endpoint(node.folder / "s")
        tenant = Tenant(lease_id=1, secret="s3cret")
        endpoint.admit(tenant)
        await endpoint.open()
        reader, writer = await asyncio.open_unix_connection(endpoint.path)

        async def say(line):
            writer.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
            return json.loads(await reader.readline())

        try:
            await talk(endpoint, tenant, say, reader)
        finally:
            writer.close()
            await endpoint.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_progress_is_taken_and_never_shrinks(node):
    async def talk(endpoint, tenant, say, reader):
        assert await say({"secret": "s3cret", "steps_live": 7, "steps_done": 5}) == {
            "notice": False
        }
        await say({"secret": "s3cret", "steps_live": 6, "steps_done": 4})
        await say({"secret": "s3cret", "rank": 1, "steps_live": 99})
        assert (tenant.steps_live, tenant.steps_done) == (7, 5)

    _serve(node, talk)


MEASURED = {
    "noise_scale_samples": 800.0, "batch_samples": 64, "step_times": [[2, 32.0, 0.1, 0.2]]
}  # fmt: skip


def test_what_a_job_has_measured_is_kept_until_it_tells_more_and_taken_of_rank_0(node):
    async def talk(endpoint, tenant, say, reader):
        await say({"secret": "s3cret", "learning": MEASURED})
        await say({"secret": "s3cret", "steps_live": 3, "of_a_later_release": {"a": [1]}})
        await say({"secret": "s3cret", "rank": 1, "learning": MEASURED | {"batch_samples": 7}})
        assert (tenant.learning.batch_samples, tenant.steps_live) == (64, 3)
        assert tenant.learning.step_times == ((2, 32.0, 0.1, 0.2),)
        await say({"secret": "s3cret", "learning": MEASURED | {"noise_scale_samples": None}})
        assert tenant.learning.noise_scale_samples is None

    _serve(node, talk)


def test_a_notice_is_pushed_and_taken_back(node):
    async def talk(endpoint, tenant, say, reader):
        await say({"secret": "s3cret"})
        endpoint.notify(1, lease_clock_s() + 9.0)
        pushed = json.loads(await reader.readline())
        assert pushed["notice"]
        assert 8.0 < pushed["leave_in_s"] <= 9.0
        assert (await say({"secret": "s3cret"}))["notice"]
        endpoint.notify(1, None)
        assert json.loads(await reader.readline()) == {"notice": False}
        assert tenant.leave_by_s is None
        assert tenant.was_noticed, "a job may still leave because of it"

    _serve(node, talk)


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\n",
        b"\xff\xfe\n",
        b"[]\n",
        {"secret": "wrong"},
        {"steps_live": 3},
        {"secret": "s3cret", "steps_live": -1},
        {"secret": "s3cret", "steps_done": "many"},
        {"secret": "s3cret", "steps_live": 10**30},
        {"secret": "s3cret", "steps_live": 2**53},
        {"secret": "s3cret", "steps_live": True},
        {"secret": "s3cret", "steps_live": 1.0},
        {"secret": "s3cret", "steps_live": float("nan")},
        {"secret": "s3cret", "rank": 10**9, "steps_live": 1},
        {"secret": "\ud800"},
        {"secret": "s3cret", "steps_live": 3, "learning": [1]},
        {
            "secret": "s3cret",
            "steps_live": 3,
            "learning": MEASURED | {"noise_scale_samples": float("nan")},
        },
        b'{"secret": "s3cret", "steps_live": ' + b"9" * 4000 + b"}\n",
        b"[" * 4000 + b"\n",
    ],
)
def test_a_line_that_cannot_be_used_is_answered_and_changes_nothing(node, line):
    async def talk(endpoint, tenant, say, reader):
        assert (await say(line)).keys() == {"error"}
        assert await say({"secret": "s3cret"}) == {"notice": False}
        assert (tenant.steps_live, tenant.steps_done) == (0, 0)

    _serve(node, talk)


@pytest.mark.parametrize("size", [4097, 4098, 5000, 9000, 60_000])
def test_a_line_that_is_too_long_is_answered_with_limit_and_size_and_the_next_is_taken(node, size):
    async def talk(endpoint, tenant, say, reader):
        answer = await say(b"x" * (size - 1) + b"\n")
        assert f"may have 4096 bytes; this one has {size} and" in answer["error"]
        assert await say({"secret": "s3cret", "steps_live": 7}) == {"notice": False}
        assert tenant.steps_live == 7
        both = b"y" * (size - 1) + b"\n" + b'{"secret": "s3cret", "steps_live": 8}\n'
        assert "4096" in (await say(both))["error"]
        assert json.loads(await reader.readline()) == {"notice": False}
        assert tenant.steps_live == 8

    _serve(node, talk)


def test_the_longest_line_is_taken(node):
    async def talk(endpoint, tenant, say, reader):
        line = json.dumps({"secret": "s3cret", "steps_live": 7}).encode()
        assert await say(line.ljust(LINE_BYTES - 1) + b"\n") == {"notice": False}
        assert tenant.steps_live == 7

    _serve(node, talk)


def test_a_line_that_does_not_end_is_answered_once_and_left_out_to_its_end(node):
    async def talk(endpoint, tenant, say, reader):
        assert "this one has more than 65536 and" in (await say(b"x" * 100_000))["error"]
        rest = b"x" * 300_000 + b"\n" + b'{"secret": "s3cret", "steps_live": 8}\n'
        assert await say(rest) == {"notice": False}
        assert tenant.steps_live == 8

    _serve(node, talk)


def test_a_lease_that_has_ended_is_served_no_more(node):
    async def talk(endpoint, tenant, say, reader):
        await say({"secret": "s3cret"})
        endpoint.dismiss(1)
        endpoint.dismiss(1)
        assert await reader.readline() == b""

    _serve(node, talk)


def test_a_path_that_the_kernel_does_not_take_is_refused(tmp_path):
    with pytest.raises(InputError, match="shorter state folder"):
        Endpoint(tmp_path / ("x" * 120))


def test_pods_reach_it_by_ipv4_and_by_ipv6(tmp_path):
    (port,) = free_ports(1)
    hosts = ["127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])]

    async def main():
        endpoint = Endpoint(tmp_path / "s", listen=("", port))
        await endpoint.open()
        for host in hosts:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b'{"secret": "x"}\n')
            assert b"not that of a lease" in await reader.readline()
            writer.close()
        await endpoint.close()

    asyncio.run(main())


@pytest.mark.parametrize("listen", [None, ("127.0.0.1", 0)])
def test_an_endpoint_that_is_stopped_while_it_opens_leaves_no_socket_open(tmp_path, listen):
    async def stop_after(turns):
        endpoint = Endpoint(tmp_path / "s", listen=listen)
        opening = asyncio.create_task(endpoint.open())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        await endpoint.close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        for turns in range(6):
            asyncio.run(stop_after(turns))
            gc.collect()
    assert [str(warning.message) for warning in told if "socket" in str(warning.message)] == []


@pytest.mark.parametrize("passes", range(8))
def test_a_connection_that_comes_as_the_endpoint_closes_is_cut_too(node, passes):
    async def main():
        endpoint = Endpoint(node.folder / "s")
        await endpoint.open()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(endpoint.path))
            for _ in range(passes):
                await asyncio.sleep(0)
            await endpoint.close()
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(main())
        gc.collect()
    assert [str(w.message) for w in caught] == []


# -- jobs that mean ill ----------------------------------------------------------------------------


def test_the_oldest_silent_connections_of_a_user_make_room(node):
    async def talk(endpoint, tenant, say, reader):
        assert await say({"secret": "s3cret"}) == {"notice": False}
        silent = [
            await asyncio.open_unix_connection(endpoint.path) for _ in range(MOST_STRANGERS + 50)
        ]
        for cut, _ in silent[:50]:
            assert await cut.read() == b""
        assert len(endpoint._peers) == MOST_STRANGERS + 1
        assert await say({"secret": "s3cret", "steps_live": 7}) == {"notice": False}
        late, writer = await asyncio.open_unix_connection(endpoint.path)
        writer.write(b'{"secret": "s3cret"}\n')
        assert json.loads(await late.readline()) == {"notice": False}
        for _, one in (*silent, (late, writer)):
            one.close()

    _serve(node, talk)


def test_a_stranger_that_sends_lines_without_a_secret_is_cut_off_soon(node):
    async def talk(endpoint, tenant, say, reader):
        flood, writer = await asyncio.open_unix_connection(endpoint.path)
        writer.write(b"{}\n" * 100_000)
        assert await say({"secret": "s3cret"}) == {"notice": False}
        answers = 0
        with contextlib.suppress(ConnectionError):
            while line := await flood.readline():
                answers += "error" in json.loads(line)
        assert answers <= MOST_REFUSED
        writer.close()

    _serve(node, talk)


def test_a_lease_that_sends_lines_without_end_leaves_their_turns_to_others(node):
    async def talk(endpoint, tenant, say, reader):
        endpoint.admit(Tenant(lease_id=2, secret="other"))
        _, flood = await asyncio.open_unix_connection(endpoint.path)
        count = 20 * LEASE_LINES
        lines = (b'{"secret": "other", "steps_live": %d}\n' % n for n in range(count))
        flood.write(b"".join(lines))
        for _ in range(50):
            assert await say({"secret": "s3cret"}) == {"notice": False}
        assert endpoint._tenants[2].steps_live < count - 1
        flood.close()

    _serve(node, talk)


def test_whoever_has_most_connections_loses_the_oldest_one_when_all_are_taken():
    class Connection:
        def __init__(self):
            self.transport, self.open = self, True

        def abort(self):
            self.open = False

    peers, made = Peers(6), [Connection() for _ in range(9)]
    for one in made[:4]:
        peers.add(one, "user 1")
        peers.know(one, 7)
    for one in made[4:]:
        peers.add(one, "user 2")
    assert len(peers) == 6
    assert [one.open for one in made] == [False, False, True, True, False, True, True, True, True]
    for one in made:
        peers.remove(one)
    assert peers.all == ()
    assert room_for_connections() > MOST_STRANGERS


def test_an_agent_that_can_open_no_more_files_goes_on(monkeypatch):
    errors = [OSError(errno.EMFILE, "Too many open files"), None]

    async def work():
        if error := errors.pop(0):
            raise error

    monkeypatch.setattr("agent.loop.AGAIN_S", 0.0)
    asyncio.run(_endure(work))
    assert errors == []
    errors[:] = [OSError(errno.EACCES, "no")]
    with pytest.raises(PermissionError):
        asyncio.run(_endure(work))
