"""What containers of the tests do: count steps under a lease, as a training job would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fake_kubelets import Container

LEFT_EARLY = 75


class Channel:
    """The way to the agent of the node."""

    def __init__(self, container: Container) -> None:
        self._env = container.env
        self.live = self.done = 0
        self.noticed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Report a last time."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                reader, writer = await self._connect()
                try:
                    self._send(writer)
                    await reader.readline()
                finally:
                    writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self._env["LEASEHOLD_ENDPOINT"].removeprefix("tcp://").rpartition(":")
        return await asyncio.open_connection(host, int(port))

    def _send(self, writer: asyncio.StreamWriter) -> None:
        message = {"secret": self._env["LEASEHOLD_SECRET"], "rank": int(self._env["RANK"])}
        message |= {"steps_live": self.live, "steps_done": self.done}
        writer.write(json.dumps(message).encode() + b"\n")

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await self._connect()
                listening = asyncio.create_task(self._listen(reader))
                try:
                    while not listening.done():
                        self._send(writer)
                        await writer.drain()
                        await asyncio.wait({listening}, timeout=0.2)
                finally:
                    listening.cancel()
                    writer.close()
            await asyncio.sleep(0.2)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if json.loads(line).get("notice"):
                self.noticed.set()


def options_of(container: Container) -> dict[str, str]:
    """Return the words of a command such as ``train step_s=0.1``."""
    return dict(word.split("=", 1) for word in container.command[1:])


async def train(container: Container) -> int:
    """Count steps; save every few and when asked to leave.

    ``step_s`` seconds a step, ``save_every`` steps; ``fail_at`` a step with exit code 1, once;
    ``oom_at`` one at which it is killed for its memory, once;
    ``stubborn=1`` for one that hears neither notice nor SIGTERM.
    """
    options, env = options_of(container), container.env
    step_s, save_every = float(options.get("step_s", 0.05)), int(options.get("save_every", 5))
    job, token = env["LEASEHOLD_JOB_ID"], int(env["LEASEHOLD_FENCING_TOKEN"])
    total, rank = int(env["LEASEHOLD_TOTAL_STEPS"]), int(env["RANK"])
    saved = container.volumes[job]
    channel = Channel(container)
    try:
        if len(saved) == total:
            return 0
        if not await _meet(container):
            return LEFT_EARLY
        ledger = [list(entry) for entry in saved]
        channel.live = channel.done = container.steps = len(ledger)
        container.print(f"loaded step {len(ledger)}")

        def save() -> None:
            if rank == 0:
                saved[:] = [list(entry) for entry in ledger]
            channel.done = len(ledger)

        while len(ledger) < total:
            leaving = container.told.is_set() or channel.noticed.is_set()
            if leaving and "stubborn" not in options:
                save()
                return LEFT_EARLY
            await asyncio.sleep(step_s)
            if not _lockstep(container):
                return LEFT_EARLY
            for name, code in (("fail_at", 1), ("oom_at", 137)):
                first = env["LEASEHOLD_ATTEMPT"] == "1"
                if first and len(ledger) + 1 == int(options.get(name, -1)):
                    container.print("it fails")
                    return code
            ledger.append([len(ledger) + 1, token])
            channel.live = container.steps = len(ledger)
            container.print(f"step {len(ledger)}")
            if len(ledger) % save_every == 0:
                save()
        save()
        container.done = True
        container.gangs[_domain(container)].done += int(env["LOCAL_WORLD_SIZE"])
        return 0
    finally:
        await channel.close()


def _domain(container: Container) -> str:
    return container.host.partition(".")[2]


async def _meet(container: Container) -> bool:
    """Wait for the others of a gang; return whether they came before it was to leave."""
    world, own = int(container.env["WORLD_SIZE"]), int(container.env["LOCAL_WORLD_SIZE"])
    if world == own:
        return True
    met = container.gangs[_domain(container)].met
    met[int(container.env["RANK"])] = own
    master = container.env["MASTER_ADDR"]
    while sum(met.values()) < world or not await container.resolve(master):
        if container.told.is_set():
            return False
        await asyncio.sleep(0.1)
    return True


def _lockstep(container: Container) -> bool:
    """Return whether the others of a gang are still there, or are done with their part."""
    world, domain = int(container.env["WORLD_SIZE"]), _domain(container)
    if world == 1:
        return True
    alive = (
        int(mate.env["LOCAL_WORLD_SIZE"])
        for host, mate in container.living.items()
        if host.partition(".")[2] == domain and not mate.done
    )
    return sum(alive) + container.gangs[domain].done >= world


async def idle(container: Container) -> int:
    """Do nothing until asked to leave."""
    await container.told.wait()
    return LEFT_EARLY


async def true(_container: Container) -> int:
    """End at once, well."""
    return 0


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Kill a process with its children in its container; wait until nothing of it is open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()


async def shell(container: Container) -> int:
    """Run a real shell in the code that the container is started in, with its variables."""
    process = await asyncio.create_subprocess_exec(
        *container.command,
        cwd=container.code or "/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        | container.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = await process.communicate()
    finally:
        await end_process(process)
    for line in said.decode().splitlines():
        container.print(line)
    return process.returncode or 0


SCRIPTS = {"sh": shell, "train": train, "idle": idle, "true": true}
