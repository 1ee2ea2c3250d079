"""Agreement of a gang's processes on the step after which they all leave.

The notice reaches each process at a different time. If one process leaves a step before the
others, they wait in a collective operation without end. So rank 0 proposes a step that lies ahead,
and no process leaves before all have promised to stop there:

1. A process that has seen the notice writes a marker. Rank 0 then proposes to stop after step S,
   some steps ahead of its own.
2. Each process answers with a vote. If it has not begun step S + 1, it promises not to begin it
   before it sees a decision. If it has, it refuses and reports its step.
3. If all promised, rank 0 decides, and all processes leave after S. If a process refused, rank 0
   proposes a later step, which also frees the processes that wait at the old one.

A thread votes, so a process still votes while it waits inside a step for the others. No wait blocks
the progress of another process. Messages are files in the checkpoint folder, which the gang shares
anyway. They may be too slow, since some network file systems cache for long. Then the deadline
comes first, and the gang is killed and continues from its last checkpoint: time is lost, but no
step is counted twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Seconds between two reads of the files while the gang is leaving.
BUSY_S = 0.02
#: Seconds between two reads while there is no message.
IDLE_S = 0.5
#: How far ahead of rank 0 the gang is asked to stop, in time.
AHEAD_S = 0.2
#: Names of the files of an agreement, and of those that are being written.
_OWN_FILE = re.compile(r"\.?(start|notice|proposal|vote|decision|finished)(-\d+)*(\.\d+)?")


class Gang:
    """One process's part in the agreement.

    Args:
        folder: shared by the gang, of this attempt alone.
        rank: of this process.
        world_size: processes in the gang.
        noticed: returns whether this process must leave.
    """

    def __init__(
        self, folder: Path, *, rank: int, world_size: int, noticed: Callable[[], bool]
    ) -> None:
        self._folder, self._rank, self._world_size = folder, rank, world_size
        self._noticed = noticed
        self._changed = threading.Condition()
        self._begun = 0
        self._began_s = time.monotonic()
        self._first = 0
        self._barrier: int | None = None
        self._decided: int | None = None
        self._round = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leasehold-gang", daemon=True)

    def agree_on_start(self, newest: Callable[[], int]) -> int:
        """Return the step at which the whole gang begins: the newest that rank 0 finds.

        Other processes might find another one after rank 0 has begun to write new checkpoints.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._rank == 0:
            self._write("start", {"step": newest()})
        while (start := self._read("start")) is None:
            time.sleep(BUSY_S)
        return int(start["step"])

    def start(self, step: int) -> None:
        """Begin to take part after ``step`` steps."""
        self._begun = self._first = step
        self._began_s = time.monotonic()
        self._thread.start()

    def close(self, *, finished_step: int | None = None) -> None:
        """Stop taking part.

        Args:
            finished_step: the last step of the job, if this process has done it. The others then go
                on to that step too, regardless of the proposals.
        """
        if finished_step is not None:
            with contextlib.suppress(OSError):
                self._write(f"finished-{self._rank}", {"promised": False, "begun": finished_step})
                if self._rank == 0 and self._decided is None:
                    number = self._newest_proposal()[0] + 1
                    self._write(f"proposal-{number:06d}", {"step": finished_step})
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def may_begin(self, step: int) -> bool:
        """Return whether to begin step number ``step`` (from 1), or to leave before it.

        Waits if this process has promised to.
        """
        with self._changed:
            while self._barrier is not None and step > self._barrier:
                if self._decided == self._barrier or self._closing.is_set():
                    return False
                self._changed.wait(1.0)
            self._begun = step
            return True

    def _run(self) -> None:
        asked = False
        while not self._closing.wait(BUSY_S if asked else IDLE_S / 5):
            with contextlib.suppress(OSError):
                if self._noticed() and not asked:
                    self._write(f"notice-{self._rank}", {})
                asked = asked or self._noticed() or self._marked()
                if asked and self._decided is None:
                    if self._rank == 0:
                        self._lead()
                    self._follow()

    def _marked(self) -> bool:
        return any(self._folder.glob("notice-*"))

    def _lead(self) -> None:
        """Propose, count votes, decide or propose again."""
        if self._round == 0:
            self._propose(self._begun)
            return
        votes = [
            self._read(f"vote-{self._round}-{rank}") or self._read(f"finished-{rank}")
            for rank in range(self._world_size)
        ]
        refusals = [v["begun"] for v in votes if v is not None and not v["promised"]]
        if refusals:
            self._propose(max(self._begun, *refusals))
        elif all(votes):
            self._write("decision", {"round": self._round, "step": self._barrier})

    def _propose(self, furthest: int) -> None:
        elapsed_s = max(time.monotonic() - self._began_s, 1e-3)
        number = self._newest_proposal()[0] + 1
        # Doubled with each refusal: the refusing process may be much faster than rank 0.
        longer = 2 ** min(number - 1, 20)
        ahead = int(AHEAD_S * longer * (self._begun - self._first) / elapsed_s) + longer
        self._write(f"proposal-{number:06d}", {"step": furthest + ahead})

    def _newest_proposal(self) -> tuple[int, int]:
        names = sorted(p.name for p in self._folder.glob("proposal-*"))
        data = self._read(names[-1]) if names else None
        return (0, 0) if data is None else (int(names[-1].split("-")[1]), data["step"])

    def _follow(self) -> None:
        """Vote on the newest proposal, and read a decision."""
        number, step = self._newest_proposal()
        if number > self._round:
            with self._changed:
                promised = self._begun <= step
                self._barrier = step if promised else None
                self._round = number
                begun = self._begun
                self._changed.notify_all()
            self._write(f"vote-{number}-{self._rank}", {"promised": promised, "begun": begun})
        decision = self._read("decision")
        if decision is not None and decision["round"] == self._round:
            with self._changed:
                self._decided = decision["step"]
                self._changed.notify_all()

    def _write(self, name: str, value: dict[str, Any]) -> None:
        temporary = self._folder / f".{name}.{self._rank}"
        temporary.write_text(json.dumps(value))
        os.replace(temporary, self._folder / name)  # noqa: PTH105 - one call, no new object

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads((self._folder / name).read_text())
        except (OSError, ValueError):
            return None
        return value


def clear_older(folder: Path, token: int) -> None:
    """Remove only the files of agreements of earlier attempts."""
    for path in folder.glob("gang-*"):
        attempt = re.fullmatch(r"gang-(\d+)", path.name)
        if attempt is None or int(attempt[1]) >= token:
            continue
        with contextlib.suppress(OSError):
            for file in path.iterdir():
                if _OWN_FILE.fullmatch(file.name):
                    file.unlink(missing_ok=True)
            path.rmdir()
