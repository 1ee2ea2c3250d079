"""Fuzzes what agents and jobs may say, with a real scheduler and a real agent behind it.

Run as a script for many messages::

    python tests/fuzz/fuzz.py --messages 1000000 --seed 7

Equal seeds draw equal messages, as far as the leases that they speak of are the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside this one
sys.path.append(str(Path(__file__).parents[1] / "support"))
from messages import Messages
from world import NODES, World

from agent.reconcile import DesiredView, accept_desired, decide_actions
from scheduler.errors import InputError
from scheduler.protocol.bounds import MOST_COUNT
from scheduler.protocol.desired import desired_from_dict
from scheduler.protocol.reading import decode_json

#: Messages that are under way at once, and after how many of these the states are checked.
AT_ONCE, CHECK_EVERY = 50, 5
#: Connections of jobs to the agent's endpoint.
CONNECTIONS = 5
#: How long an answer may take, on a busy machine.
ANSWER_S = 60.0


@dataclass
class Tally:
    """What became of the messages.

    Attributes:
        sent: how many of each kind.
        decoded: how many of these were read to their end.
        statuses: answers of the scheduler.
    """

    sent: Counter[str] = field(default_factory=Counter)
    decoded: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """Share of the messages that passed decoding."""
        return self.decoded.total() / max(self.sent.total(), 1)

    def count(self, kind: str, *, read: bool) -> None:
        """Take note of one message."""
        self.sent[kind] += 1
        self.decoded[kind] += read


class Fuzzer:
    """Sends messages.

    Args:
        world: the receivers.
        seed: of all draws.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.draw = random.Random(seed)
        self.messages = Messages(self.draw)
        self.tally = Tally()
        self._sequence = Counter[str]()
        self._lines: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def run(self, messages: int) -> Tally:
        """Send so many messages, and check all the while that all is well."""
        batches = 0
        while self.tally.sent.total() < messages:
            if batches % CHECK_EVERY == 0:
                await self.world.top_up()
                await self.world.check()
            secrets = self.world.job_secrets() or ["gone"]
            left = min(AT_ONCE, messages - self.tally.sent.total())
            kinds = self.draw.choices(
                (self.report, self.desired, self.log, self.told), (50, 5, 5, 5), k=left * 3 // 5
            )
            lines = [self.line(i, secrets) for i in range(left - len(kinds))]
            await asyncio.gather(*(kind() for kind in kinds), self._in_turn(lines))
            batches += 1
        await self.world.check()
        for _, writer in self._lines:
            await _hang_up(writer)
        return self.tally

    @staticmethod
    async def _in_turn(calls: list[Any]) -> None:
        for call in calls:
            await call

    # -- to the scheduler -------------------------------------------------------------------------

    async def _ask(self, kind: str, *args: Any, **more: Any) -> None:
        async with asyncio.timeout(ANSWER_S):
            status = await self.world.ask(*args, **more)
        self.tally.statuses[status] += 1
        if status >= 500 or status == 0:
            raise AssertionError(f"a message of kind '{kind}' is answered with {status}: {args}")
        self.tally.count(kind, read=status not in {400, 413, 422})

    async def report(self) -> None:
        """Send a node's report."""
        node = self.draw.choice(NODES)
        self._sequence[node] += 1
        state = self.world.service.driver.control.state
        known = state.nodes.by_name.get(node)
        message = self.messages.report(
            node=node,
            sequence=self._sequence[node],
            term=state.term,
            revision=0 if known is None else known.revision,
            leases=[live.lease for live, _ in state.leases.held_by(node)],
        )
        body = self.messages.encoded(message)
        await self._ask("report", "POST", "/v1/agent/report", node, body)
        if known is not None:  # what says to come from the end of time would be the last word
            known.incarnation, known.sequence = 1.0, min(known.sequence, self._sequence[node])

    async def desired(self) -> None:
        """Ask for a desired set."""
        draw = self.draw
        numbers = (0, 1, MOST_COUNT, MOST_COUNT + 1, -1, "x", "9" * 5000, "1e3", "%00", "nan")
        given = {"term": draw.choice(numbers[:4]), "revision": draw.choice(numbers[:4])}
        if draw.random() < 0.3:
            given[draw.choice(("term", "revision", "wait_s", "more"))] = draw.choice(numbers)
        query = "&".join(f"{name}={value}" for name, value in given.items())
        await self._ask("desired", "GET", "/v1/agent/desired", draw.choice(NODES), query=query)

    async def log(self) -> None:
        """Send a piece of output."""
        draw = self.draw
        leases = list(self.world.service.driver.control.state.leases.by_id) or [1]
        lease = draw.choice((draw.choice(leases), 0, 10**14, "9" * 5000, "-1", "x"))
        offset = draw.choice((0, 0, 10, MOST_COUNT, MOST_COUNT + 1, "-1", "x"))
        path = f"/v1/agent/logs/{lease}/{draw.choice(('out', 'err', 'x'))}"
        body = draw.randbytes(draw.randrange(200))
        await self._ask("log", "PUT", path, draw.choice(NODES), body, f"offset={offset}")

    # -- to the agent -----------------------------------------------------------------------------

    async def told(self) -> None:
        """Let an agent read its orders, and decide its actions."""
        desired = await self.world.service.desired_json("real", after=(0, 0), wait_s=0.0)
        message = json.loads(desired)
        try:
            read = desired_from_dict(decode_json(self.messages.encoded(message)))
        except InputError:
            self.tally.count("told", read=False)
            return
        decide_actions(accept_desired(DesiredView(), read, sent_s=0.0), (), now_s=0.0, margin_s=1.0)
        self.tally.count("told", read=True)

    async def line(self, number: int, secrets: list[str]) -> None:
        """Send the agent a job's message, and wait for its answer.

        A caller without a secret within some time is disconnected, and calls again; a line at
        which the agent hangs up a second time is a fault.
        """
        place = number % CONNECTIONS
        line = self.messages.encoded(self.messages.line(self.draw.choice(secrets)))
        answer = await self._told_line(place, line) or await self._told_line(place, line)
        if not answer:
            raise AssertionError(f"the agent hung up twice at {line[:4096]!r}")
        self.tally.count("line", read=b'"notice"' in answer)

    async def _told_line(self, place: int, line: bytes) -> bytes:
        """Return the answer to a line; empty if the agent has hung up."""
        if place == len(self._lines):
            self._lines.append(await asyncio.open_unix_connection(self.world.endpoint))
        reader, writer = self._lines[place]
        answer = b""
        with contextlib.suppress(ConnectionError):
            writer.write(line.replace(b"\n", b" ") + b"\n")
            async with asyncio.timeout(ANSWER_S):
                answer = await reader.readline()
        if not answer:
            await _hang_up(writer)
            self._lines[place] = await asyncio.open_unix_connection(self.world.endpoint)
        return answer


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def fuzz(messages: int, seed: int) -> Tally:
    """Fuzz a world of its own.

    Raises:
        AssertionError: something ended, or was answered with an error of the scheduler's own.
        InvariantError: the scheduler's state contradicts itself.
    """
    folder = Path(tempfile.mkdtemp(prefix="lf-"))
    world = World(folder)
    try:
        await world.begin()
        return await Fuzzer(world, seed).run(messages)
    finally:
        await world.end()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Fuzz as the command line says; the exit code is 1 where at most half was decoded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    logging.getLogger("leasehold").setLevel(logging.CRITICAL)
    logging.getLogger("leasehold.service").setLevel(logging.ERROR)
    print(f"seed {options.seed}", flush=True)
    began_s = time.monotonic()
    tally = asyncio.run(fuzz(options.messages, options.seed))
    for kind, sent in sorted(tally.sent.items()):
        print(f"{kind:8} {sent:9} sent {tally.decoded[kind]:9} decoded")
    print(f"answers {dict(sorted(tally.statuses.items()))}")
    print(f"{tally.share:.0%} decoded, in {time.monotonic() - began_s:.0f} s: all is well")
    return 0 if tally.share >= 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
