"""What an agent waits for has a bound."""

from __future__ import annotations

import asyncio
import json
import threading

from typer.testing import CliRunner

import agent.process.supervisor
from agent.endpoint.endpoint import Endpoint, Tenant
from leasehold.cli.main import app
from scheduler.domain.facts.troubles import trouble_of
from scheduler.domain.lease_life import EndReason

#: In the place of the supervisor: as if its working directory is on a file server that is gone.
HANGS = "import time\ntime.sleep(600)\n"


def run(main):
    asyncio.run(asyncio.wait_for(main, 100))


def test_a_lease_whose_processes_are_never_started_ends_with_a_reason(node, tmp_path, monkeypatch):
    program = tmp_path / "hangs.py"
    program.write_text(HANGS)
    monkeypatch.setattr(agent.process.supervisor, "__file__", str(program))

    async def main():
        async with node.agent(start_most_s=0.5):
            node.want(node.lease(1, "pass", remaining_s=600.0))
            report = await node.until(lambda: node.ended(1), 60)
            assert (report.reason, report.reason_code) == (EndReason.LOST, "NotStarted")
            assert report.message == "its processes were not started within 0.5 s"
            assert trouble_of(report.reason_code, report.message) == "not_started"
            await node.until(lambda: not node.processes_of(1))

    run(main())


def test_an_unknown_step_of_a_launch_is_named():
    for item in ("mount=3", "bind", "bind=-1", "image=soon", "process=inf"):
        result = CliRunner().invoke(app, ["agent", "--start-timeout", item])
        assert result.exit_code != 0
        assert f"--start-timeout is '{item}'" in str(result.exception) + result.output


def test_a_driver_that_gives_no_answer_is_remarked_on_and_holds_nothing_up(node):
    answer = threading.Event()

    def remarks():
        report = node.report()
        return report.remarks if report else ()

    async def main():
        async with node.agent(health_most_s=0.1, health_every_s=0.1) as agent:
            agent._inventory = SilentDriver(agent._inventory.workers, answer)
            node.want(node.lease(1, "pass"))
            assert "no answer for 0.1 s" in (await node.until(remarks, 60))[0]
            await node.until(lambda: node.ended(1), 60)
            answer.set()
            await node.until(lambda: not remarks(), 60)

    try:
        run(main())
    finally:
        answer.set()


class SilentDriver:
    def __init__(self, workers, answer):
        self.workers, self.answer = workers, answer

    def problems(self):
        self.answer.wait(100)
        return {}

    def environment(self, indices):
        return {}


def test_a_connection_that_does_not_say_whose_it_is_is_closed(node):
    async def main():
        endpoint = Endpoint(node.folder / "s", stranger_most_s=0.1)
        await endpoint.open()
        reader, writer = await asyncio.open_unix_connection(endpoint.path)
        assert await reader.read() == b""
        writer.close()
        await endpoint.close()

    run(main())


def test_a_job_that_says_who_it_is_may_be_silent_then(node):
    async def main():
        endpoint = Endpoint(node.folder / "s", stranger_most_s=0.2)
        endpoint.admit(Tenant(lease_id=1, secret="x"))
        await endpoint.open()
        reader, writer = await asyncio.open_unix_connection(endpoint.path)
        writer.write(b'{"secret": "x"}\n')
        assert json.loads(await reader.readline()) == {"notice": False}
        await asyncio.sleep(0.6)  # three times as long as a stranger has
        endpoint.notify(1, 5.0)
        assert json.loads(await reader.readline())["notice"] is True
        writer.close()
        await endpoint.close()

    run(main())


def test_a_job_that_reads_nothing_does_not_keep_the_agent_from_ending(node):
    async def main():
        endpoint = Endpoint(node.folder / "s")
        tenant = Tenant(lease_id=1, secret="x")
        endpoint.admit(tenant)
        await endpoint.open()
        reader, writer = await asyncio.open_unix_connection(endpoint.path)
        writer.write(b'{"secret": "x"}\n')
        await reader.readline()
        (own,) = tenant.writers
        own.write(b"x" * 2**24)  # more than any buffer on the way takes
        async with asyncio.timeout(60):
            await endpoint.close()
        writer.close()

    run(main())
