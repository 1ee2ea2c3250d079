"""Output of pods, read through the API server into the files that local processes write to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent.kubernetes.client import KubernetesError, MissingError
from agent.kubernetes.templates.template import CONTAINER
from agent.logs.job_output import RotatedLog, read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.pods.record import PodRecord

_log = logging.getLogger("leasehold.agent")

#: Size at which a file moves aside, how many are kept, and the most bytes of one stream.
FILE_BYTES: Final = 16 * 2**20
BACKUPS: Final = 3
STREAM_BYTES: Final = 64 * 2**20


@dataclass(kw_only=True)
class PodLog:
    """The output of one pod on its way into a file.

    Kubernetes does not separate standard output and standard error; both go to the first.

    Attributes:
        folder: the lease's folder of logs.
        record: the lease.
    """

    folder: Path
    record: PodRecord
    _since: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Continue from an earlier agent's position."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._mark = self.folder / ".since"
        with contextlib.suppress(OSError):
            self._since = read_regular(self._mark, 100).decode(errors="replace")
        path = output_file(self.folder, self.record.lease.rank)
        self._log = RotatedLog(path=path, max_bytes=FILE_BYTES, backups=BACKUPS)
        self._log.recall()

    async def follow(self, client: KubernetesClient, namespace: str) -> bool:
        """Read the output so far and as it comes.

        Returns:
            whether it is complete: the container has ended, or its pod is gone.
        """
        record = self.record
        over = record.gone or record.look is None or record.look.job_over
        try:
            async for line in client.follow_log(
                namespace,
                record.name,
                container=CONTAINER,
                since=_whole_seconds(self._since),
                limit_bytes=STREAM_BYTES,
            ):
                self._take(line)
        except MissingError:
            return True
        except KubernetesError:
            return over and record.gone
        finally:
            self._log.close()
            self._mark.write_text(self._since)
        return over

    def _take(self, line: bytes) -> None:
        """Take in a line that begins with its time, unless it was read before."""
        stamp, _, text = line.partition(b" ")
        when = stamp.decode(errors="replace")
        if not when.endswith("Z") or sortable_time(when) <= sortable_time(self._since):
            return
        self._since = when
        self._log.write(text + b"\n")


def output_file(folder: Path, rank: int) -> Path:
    """Return the file of a pod's output in its lease's folder of logs."""
    return folder / f"stdout.{rank}.log"


async def read_output(
    record: PodRecord, client: KubernetesClient, namespace: str, folder: Path
) -> None:
    """Read a pod's output until it ends; if that fails, the lease continues without it."""
    log: PodLog | None = None
    try:
        while not record.output_over:
            look = record.look
            if look is not None and (look.running or look.job_over):
                log = log or PodLog(folder=folder, record=record)
                if await log.follow(client, namespace):
                    break
            elif record.gone or (record.end is not None and record.pod is None):
                break
            await asyncio.sleep(0.5)
    except Exception:  # noqa: BLE001 - a full disk, say
        _log.exception("the output of lease %d is read no further", record.lease.lease_id)
    record.output_over = True
    record.poke.set()


def sortable_time(stamp: str) -> str:
    """Return a time such as ``2026-01-01T00:00:00.5Z`` as a text that sorts like the time."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<9}" if whole else ""


def _whole_seconds(stamp: str) -> str:
    """Return the time cut to the second, which is all that the server uses."""
    return stamp.split(".", maxsplit=1)[0].rstrip("Z") + "Z" if stamp else ""
