"""Sends the output of leases to the scheduler, in the background and at a limited rate.

The scheduler's answer has the length of its copy, so nothing needs to be stored here: after a
restart an empty piece asks for it. Once a lease has ended and all of its output is sent, each
stream gets an end mark. The mark shows the scheduler that the output is complete. Then the lease
gets the file ``.sent`` in its folder of logs. Folders without it are processed at the start,
whichever agent wrote them. A refused lease has a folder, too, and gets its marks at once.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.logs.job_output import SPOILT, read_regular, write_json
from agent.logs.log_files import SENT, STREAMS, nonce_in, read_piece, stream_file
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from agent.link.port import Link

_log = logging.getLogger("leasehold.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadSettings:
    """Rate and times of the upload.

    Attributes:
        every_s: between two checks for new output.
        piece_bytes: largest piece.
        bytes_per_s: long-term rate limit of the whole node.
        retry_least_s: first wait after the scheduler could not be reached; doubles.
        retry_most_s: longest such wait.
    """

    every_s: float = 1.0
    piece_bytes: int = 256 * 1024
    bytes_per_s: float = 4e6
    retry_least_s: float = 1.0
    retry_most_s: float = 30.0


@dataclass(kw_only=True)
class Outbox:
    """One stream of one lease on its way.

    Attributes:
        folder: the lease's folder of logs.
        stream: ``out`` or ``err``.
        offset: the length of the scheduler's copy; None until it was asked.
        shift: offset in the files minus offset at the scheduler. Not 0 once output was rotated away
            before it could be sent; a line about it stands in its place.
        over: whether the scheduler has the end mark.
        nonce: of the lease; empty if it has none.
    """

    folder: Path
    stream: str
    offset: int | None = None
    shift: int = 0
    over: bool = False
    nonce: str = ""

    @property
    def lease_id(self) -> int:
        """The lease."""
        return int(self.folder.name)

    def recall(self) -> None:
        """Read the stored shift of an earlier agent, and the nonce of the lease."""
        self.nonce = nonce_in(self.folder)
        try:
            self.shift = int(json.loads(read_regular(self._shift_file(), 1024))["shift"])
        except SPOILT:
            self.shift = 0

    def next_piece(self, most_bytes: int) -> bytes:
        """Return the next piece; empty when the scheduler has everything."""
        assert self.offset is not None
        path = stream_file(self.folder, self.stream)
        if path is None:  # pruned a moment ago
            return b""
        piece = read_piece(path, self.offset + self.shift, most_bytes)
        lost = piece.offset - (self.offset + self.shift)
        if not lost:
            return piece.data
        note = f"\n[{lost} bytes of output were dropped before they could be sent]\n".encode()
        self.shift += lost - len(note)
        write_json(self._shift_file(), {"shift": self.shift})
        return note

    def _shift_file(self) -> Path:
        return self.folder / f".shift.{self.stream}"


@dataclass(kw_only=True)
class LogUploader:
    """Sends the output of leases.

    Attributes:
        link: the way to the scheduler.
        logs_dir: a folder per lease, named by its id.
        running: returns the leases that may still write.
        settings: times and sizes.
        chance: spreads the work of many agents over time; guards nothing.
    """

    link: Link
    logs_dir: Path
    running: Callable[[], Collection[int]]
    settings: UploadSettings = field(default_factory=UploadSettings)
    chance: random.Random = field(default_factory=random.Random)
    _outboxes: dict[int, Sequence[Outbox]] = field(default_factory=dict, init=False)
    _seen: set[str] | None = field(default=None, init=False)

    async def run(self) -> None:
        """Send until cancelled."""
        failures = 0
        while True:
            try:
                await self._round()
            except OSError as error:
                failures += 1
                _log.debug("output waits (%s)", error)
                await asyncio.sleep(self._pause_s(failures))
            else:
                failures = 0
                await asyncio.sleep(self.settings.every_s)

    def begin(self, lease_id: int) -> None:
        """Start a lease again: its folder of logs was created just now."""
        self._outboxes.pop(lease_id, None)
        if self._seen is not None:
            self._seen.discard(str(lease_id))

    def pending(self) -> bool:
        """Return whether output of any lease is not all sent."""
        folders = (path for path in self.logs_dir.iterdir() if path.name.isdecimal())
        return any(not (folder / SENT).exists() for folder in folders)

    def _pause_s(self, failures: int) -> float:
        settings = self.settings
        most_s: float = settings.retry_least_s * 2 ** min(failures - 1, 16)
        return min(most_s, settings.retry_most_s) * self.chance.uniform(0.5, 1.0)

    def _look_around(self) -> None:
        """Start sending new leases, and at first those that an earlier agent did not finish."""
        names = {path.name for path in self.logs_dir.iterdir()}
        for name in sorted(names if self._seen is None else names - self._seen):
            if name.isdecimal() and not (self.logs_dir / name / SENT).exists():
                self._take_up(self.logs_dir / name, offset=None if self._seen is None else 0)
        self._seen = names

    def _take_up(self, folder: Path, *, offset: int | None) -> None:
        boxes = [Outbox(folder=folder, stream=stream, offset=offset) for stream in STREAMS]
        for box in boxes:
            box.recall()
        self._outboxes[boxes[0].lease_id] = boxes

    async def _round(self) -> None:
        """Send one piece of each stream, again and again until nothing is left to send.

        New leases are looked for each time: a job that prints without end must not keep back the
        output of those that start later.
        """
        more = True
        while more:
            more = False
            self._look_around()
            for lease_id in tuple(self._outboxes):
                more |= await self._send_lease(lease_id)

    async def _send_lease(self, lease_id: int) -> bool:
        """Send a piece of each stream of a lease; return whether there was any."""
        ended = lease_id not in self.running()  # asked first, so that no later output is missed
        sent, boxes = 0, self._outboxes.get(lease_id, ())
        for box in boxes:
            try:
                sent += await self._send(box)
            except InputError as error:
                _log.info("output of lease %d is not sent: %s", lease_id, error)
                self._finish(boxes)
                return False
            except FileNotFoundError:
                continue  # pruned meanwhile
            except OSError:
                raise  # the scheduler is away: all of them wait
            except Exception:  # noqa: BLE001 - other leases' output continues
                _log.exception("the output of lease %d is not sent to its end", lease_id)
                self._finish(boxes)
                return False
        if ended and not sent and await self._tell_end(boxes):
            self._finish(boxes)
        return sent > 0

    async def _tell_end(self, boxes: Sequence[Outbox]) -> bool:
        """Mark the streams of a lease as complete; return whether the lease is finished."""
        # If the folder was pruned, it is not known whether everything was sent.
        pending = [box for box in boxes if not box.over and box.folder.exists()]
        for box in pending:
            told = box.offset or 0
            try:
                box.offset = await self._append(box, b"", end=True)
            except InputError as error:
                _log.info("the scheduler forgot lease %d before its end: %s", box.lease_id, error)
                return True
            box.over = box.offset == told  # otherwise the scheduler has lost some, and gets it
        return all(box.over for box in pending)

    async def _send(self, box: Outbox) -> int:
        if stream_file(box.folder, box.stream) is None:
            return 0
        if box.offset is None:
            box.offset = await self._append(box, b"")
        data = await asyncio.to_thread(self._read, box)
        if not data:
            return 0
        before, box.offset = box.offset, await self._append(box, data)
        if box.offset <= before:
            raise ConnectionError(
                f"the scheduler has {box.offset} bytes of {box.stream} of lease {box.lease_id} "
                f"after {len(data)} were sent from {before} on"
            )
        await asyncio.sleep(len(data) / self.settings.bytes_per_s)
        return len(data)

    def _read(self, box: Outbox) -> bytes:
        try:
            return box.next_piece(self.settings.piece_bytes)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOSPC}:
                raise
            # An error here is not the link's, for which all leases would wait.
            raise InputError(f"its {box.stream} cannot be read: {error}") from error

    async def _append(self, box: Outbox, data: bytes, *, end: bool = False) -> int:
        return await self.link.append_log(
            box.lease_id,
            box.stream,
            offset=box.offset or 0,
            data=data,
            end=end,
            nonce=box.nonce,
        )

    def _finish(self, boxes: Sequence[Outbox]) -> None:
        """Mark the output of a lease as sent, unless another lease has its number and folder."""
        if not boxes or self._outboxes.get(boxes[0].lease_id) is not boxes:
            return
        del self._outboxes[boxes[0].lease_id]
        if boxes[0].folder.exists():
            (boxes[0].folder / SENT).touch()
