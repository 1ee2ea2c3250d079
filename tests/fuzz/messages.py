"""Messages of agents and jobs, drawn from the protocol's bounds, and broken now and then.

A message begins as one that may be sent: every field within its bounds, often at their edges. Then,
sometimes, a field is put beyond them, taken away or made something else.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol import bounds

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

#: Share of the messages that are broken in one place or two, and that are broken as bytes.
BROKEN, GARBLED = 0.3, 0.02
#: Worker types that a node has: few, for it is another node with others.
TYPES = ("fz-a", "fz-b")
#: Values beyond some bound, or of another kind, for any field.
STRANGE: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], {"": {}}, "", " ", "0", "NaN", "a\0b", "\ud800", "\x1b[2J"),
    *(-1, 0, 1, 1.0, -0.0, 0.5, 1e308, float("nan"), float("inf"), float("-inf")),
    *(2**31, -(2**31) - 1, 2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, -(10**30), 10**400),
    *(bounds.LATEST_S, bounds.LATEST_S * 2, bounds.LONGEST_S * 2),
    *("x" * (bounds.LONGEST_NAME + 1), "y" * 20_000, "\u00e9\U0001f600" * 50),
    *(["x"] * 300, [0] * 5000, {"a": "b"}, {"lease_id": 1}),
)


class Messages:
    """Draws messages.

    Args:
        random: where from.
    """

    def __init__(self, random: random.Random) -> None:
        self.random = random

    # -- valid messages --------------------------------------------------------------------------

    def count(self, most: int = bounds.MOST_COUNT) -> int:
        """Return a number up to a bound, small ones and the edges most often."""
        draw = self.random
        return draw.choice((0, 1, draw.randrange(100), draw.randint(0, most), most))

    def number(self, most: float) -> float | int:
        """Return a number from 0 to a bound."""
        draw = self.random
        return draw.choice((0, 0.0, 1, draw.uniform(0, 100), draw.uniform(0, most), most))

    def words(self, longest: int = 60) -> str:
        """Return a message to people: any characters, seldom very many."""
        draw = self.random
        many = longest if draw.random() < 0.02 else 20
        ranges = ((32, 126), (32, 126), (0, 31), (127, 0xD7FF), (0xE000, 0x10FFFF))
        return "".join(chr(draw.randint(*draw.choice(ranges))) for _ in range(draw.randrange(many)))

    def maybe(self, value: Any) -> Any:
        """Return the value or nothing."""
        return value if self.random.random() < 0.7 else None

    def report(
        self, *, node: str, sequence: int, term: int, revision: int, leases: Sequence[Any]
    ) -> dict[str, Any]:
        """Return a node's report on some of the leases that it is to hold, and on others."""
        draw = self.random
        told = [self.lease(lease.lease_id, lease.token) for lease in leases if draw.random() < 0.8]
        known = {lease["lease_id"] for lease in told}
        if draw.random() < 0.2 and (other := self.count()) not in known:
            told.append(self.lease(other, self.count()))
        types = TYPES if draw.random() < 0.98 else draw.choices(TYPES, k=draw.randrange(4))
        return {
            "node": node,
            "incarnation": 1.0,
            "sequence": sequence,
            "term": draw.choice((term, term, 0)),
            "revision": draw.choice((revision, revision, revision, 0, self.count())),
            "workers": [self.worker(index, kind) for index, kind in enumerate(types)],
            "leases": told,
            "remarks": [self.words() for _ in range(draw.choice((0, 0, 1, bounds.MOST_REMARKS)))],
        }

    def worker(self, index: int, worker_type: str) -> dict[str, Any]:
        """Return a worker's report."""
        draw = self.random
        return {
            "index": index,
            "worker_type": worker_type,
            "problem": self.words() if draw.random() < 0.03 else "",
            "sharing": draw.choice(("visible", "visible", "exclusive", "mps", "new")),
        }

    def lease(self, lease_id: int, token: int) -> dict[str, Any]:
        """Return a lease's report."""
        draw = self.random
        state = draw.choice((*LeasePhase, LeasePhase.RUNNING, LeasePhase.RUNNING))
        least, most = bounds.LEAST_EXIT_CODE, bounds.MOST_EXIT_CODE
        return {
            "lease_id": lease_id,
            "token": token,
            "state": state.value,
            "reason": draw.choice(list(EndReason)).value if state is LeasePhase.ENDED else None,
            "exit_code": self.maybe(
                draw.choice((0, 1, -9, least, most, draw.randint(least, most)))
            ),
            "steps_done": self.count(),
            "steps_live": self.count(),
            "started_s": self.maybe(self.number(bounds.LATEST_S)),
            "message": self.words(bounds.LONGEST_MESSAGE),
            "reason_code": draw.choice(("", "ImagePullBackOff", "OOMKilled", self.words())),
            **{name: self.maybe(self.number(bounds.LONGEST_S)) for name in _TIMES},
            "devices": [self.device() for _ in range(draw.choice((0, 0, 2, bounds.MOST_DEVICES)))],
        }

    def device(self) -> str:
        """Return a node's name of an accelerator."""
        return f"GPU-{self.random.randrange(1 << 64):x}"

    def line(self, secret: str) -> dict[str, Any]:
        """Return a job's message to its agent."""
        draw = self.random
        message: dict[str, Any] = {
            "rank": self.count(bounds.MOST_RANKS),
            "steps_live": self.count(),
            "steps_done": self.count(),
            "guard": draw.random() < 0.5,
        }
        told = {name: value for name, value in message.items() if draw.random() < 0.7}
        return {"secret": secret, **told}

    # -- invalid messages ------------------------------------------------------------------------

    def encoded(self, message: dict[str, Any]) -> bytes:
        """Return a message as JSON, broken now and then."""
        draw = self.random
        if draw.random() < BROKEN:
            for _ in range(draw.choice((1, 1, 2))):
                self._break(message)
        data = json.dumps(message, ensure_ascii=draw.random() < 0.5).encode(errors="surrogatepass")
        return self._garbled(data) if draw.random() < GARBLED else data

    def _break(self, message: dict[str, Any]) -> None:
        """Change one place of a message, however deep."""
        draw = self.random
        where: Any = message
        while True:
            if not where:
                return
            key = draw.choice(list(where) if isinstance(where, dict) else range(len(where)))
            below = where[key]
            if isinstance(below, dict | list) and below and draw.random() < 0.8:
                where = below
                continue
            break
        way = draw.randrange(10)
        if way == 0:
            del where[key]
        elif way == 1 and isinstance(where, list):
            where.append(copy.deepcopy(where[key]))
        elif way == 2 and isinstance(where, dict):
            where[self.words()] = self._strange()
        elif way == 3:
            where[key] = self._nested(draw.choice((3, 50, 2000)))
        else:
            where[key] = self._strange()

    def _strange(self) -> Any:
        """Return a value of its own: a second break may be put into it."""
        return copy.deepcopy(self.random.choice(STRANGE))

    def _nested(self, depth: int) -> Any:
        value = self._strange()
        for _ in range(min(depth, 200)):  # more Python's encoder may not write
            value = [value] if self.random.random() < 0.5 else {"a": value}
        return value

    def _garbled(self, data: bytes) -> bytes:
        draw = self.random
        place = draw.randrange(len(data))
        return draw.choice(
            (
                data[:place],
                data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :],
                data[:place] + data,
                b"[" * draw.choice((100, 100_000)),
                b"9" * draw.choice((100, 10_000)),
                b"",
                draw.randbytes(50),
            )
        )


_TIMES = ("image_s", "launch_s", "ready_s")
