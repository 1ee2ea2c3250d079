"""A job's messages and faults end its own lease at most: the agent and the other leases go on."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.logs.log_upload import LogUploader, UploadSettings
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import InputError
from scheduler.protocol import bounds

LASTING = "import time; print('on', flush=True); time.sleep(60)"
#: Reports to its agent, in all ways, that it has done 10**30 steps.
ABSURD = """
import json, os, socket, time
print("step 1" + "0" * 30, flush=True)
open(os.environ["LEASEHOLD_PROGRESS_FILE"], "w").write(json.dumps({"steps_live": 10**30}))
open("progress", "w").write("1" + "0" * 4000)
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["LEASEHOLD_ENDPOINT"])
secret = os.environ["LEASEHOLD_SECRET"]
link.sendall(json.dumps({"secret": secret, "steps_live": 10**30}).encode() + b"\\n")
print(link.recv(4096).decode(), flush=True)
time.sleep(2)
"""
#: Puts something else in the place of what its agent and its supervisor wrote.
BREAKS = """
import os, sys, time
name, text = sys.argv[1:]
path = os.path.join(os.environ["LEASEHOLD_LEASE_FOLDER"], name)
open(path + "~", "w").write(text)
os.replace(path + "~", path)
print("done", flush=True)
time.sleep(60)
"""


def test_a_job_that_claims_absurd_steps_is_told_so_and_runs_on(node):
    async def scenario():
        lease = node.lease(
            1, ABSURD, progress_regex=r"step (\d+)", progress_file="progress", total_steps=10
        )
        node.want(lease)
        async with node.agent():
            ended = await node.until(lambda: node.ended(1))
        assert 0 <= ended.steps_live <= bounds.MOST_COUNT
        answer = json.loads(node.log(1).splitlines()[1])
        assert "steps_live" in answer["error"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("exit.json", "{}"),
        ("exit.json", '{"code": "x", "error": ""}'),
        ("exit.json", "[" * 100_000),
        ("running.json", '{"pid": 1e400, "groups": 7}'),
        ("running.json", f'{{"pid": {10**30}, "groups": {{"x": []}}}}'),
        ("launch.json", '{"group": []}'),
        ("output.json", f'{{"steps_live": {10**30}, "steps_done": true}}'),
    ],
)
def test_files_that_a_job_breaks_end_its_own_lease_at_most(node, name, text):
    async def scenario():
        other = node.lease(2, LASTING, workers=(1,))
        lease = node.lease(1, "")
        command = (lease.command[0], "-c", BREAKS, name, text)
        node.want(node.lease(1, "", command=command), other)
        async with node.agent():
            await node.until(lambda: "done" in node.log(1) and node.runs(2))
            node.want(node.lease(1, "", command=command, remaining_s=40.0), other)  # renewed
            node.want(other)
            ended = await node.until(lambda: node.ended(1), 30.0)
            assert ended.exit_code is None or isinstance(ended.exit_code, int)
            assert node.of(2).state is LeasePhase.RUNNING
            await node.until(lambda: not node.processes_of(1))
            node.want()
            await node.until(lambda: node.report().leases == ())

    asyncio.run(scenario())


def test_a_lease_that_cannot_be_started_ends_with_the_reason(node):
    (node.state_dir / "leases").mkdir(parents=True)

    async def scenario():
        async with node.agent():
            (node.state_dir / "leases" / "1").write_text("in the way")
            node.want(node.lease(1, LASTING), node.lease(2, LASTING, workers=(1,)))
            ended = await node.until(lambda: node.ended(1))
            assert ended.reason is EndReason.LOST
            assert "FileExistsError" in ended.message
            await node.until(lambda: node.runs(2))

    asyncio.run(scenario())


def test_a_lease_that_makes_no_sense_is_reported_as_failed_and_the_others_run(node):
    async def scenario():
        async with node.agent():
            node.want(node.lease(1, LASTING), node.lease(2, LASTING, workers=(1,)))
            path = node.folder / "desired.json"
            message = json.loads(path.read_text())
            message["desired"]["leases"][0]["env"] = {"A": 7}
            message["desired"]["revision"] += 1
            node.revision += 1
            path.write_text(json.dumps(message))
            ended = await node.until(lambda: node.ended(1))
            assert ended.reason in {EndReason.FAILED, EndReason.CANCELLED}
            await node.until(lambda: node.runs(2))

    asyncio.run(scenario())


def test_an_adopted_lease_that_was_tampered_with_is_ended_and_the_others_go_on(node):
    async def scenario():
        node.want(node.lease(1, LASTING), node.lease(2, LASTING, workers=(1,)))
        async with node.agent():
            await node.until(lambda: node.runs(1) and node.runs(2))
        record = node.state_dir / "leases" / "1" / "lease.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"secret": None}))
        node.want(node.lease(2, LASTING, workers=(1,)))
        async with node.agent():
            await node.until(lambda: node.of(1) is None and node.runs(2))
            await node.until(lambda: not node.processes_of(1))

    asyncio.run(scenario())


def test_output_that_cannot_be_read_holds_up_no_other_lease(tmp_path):
    class Link:
        def __init__(self):
            self.arrived = asyncio.Event()

        async def append_log(self, lease_id, stream, *, offset, data, end=False, nonce=""):
            if lease_id == 2:
                raise InputError("no such lease")
            if lease_id == 3:
                raise TypeError("a fault of our own")
            if (lease_id, data) == (4, b"output"):
                self.arrived.set()
            return offset + len(data)

    async def scenario():
        link = Link()
        for lease_id in range(1, 5):
            (tmp_path / str(lease_id)).mkdir()
        (tmp_path / "1" / "stdout.0.log").mkdir()
        for lease_id in (2, 3, 4):
            (tmp_path / str(lease_id) / "stdout.0.log").write_text("output")
        uploader = LogUploader(
            link=link, logs_dir=tmp_path, running=set, settings=UploadSettings(every_s=0.01)
        )
        task = asyncio.create_task(uploader.run())
        async with asyncio.timeout(20):
            await link.arrived.wait()
        assert not task.done()
        task.cancel()

    asyncio.run(scenario())
