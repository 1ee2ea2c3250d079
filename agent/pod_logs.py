"""Output of pods, read through the API server into the files that local processes write to."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent.kubernetes_client import KubernetesError, MissingError
from agent.pod_template import CONTAINER
from agent.supervisor import Progress, RotatedLog

if TYPE_CHECKING:
    from pathlib import Path

    from agent.kubernetes_client import KubernetesClient
    from agent.pod_record import PodRecord

#: Size at which a file moves aside, how many are kept, and what one stream brings at most.
FILE_BYTES: Final = 16 * 2**20
BACKUPS: Final = 3
STREAM_BYTES: Final = 64 * 2**20


@dataclass(kw_only=True)
class PodLog:
    """The output of one pod on its way into a file.

    Kubernetes does not tell standard output and standard error apart; both go to the first.

    Attributes:
        folder: the lease's folder of logs.
        record: the lease.
    """

    folder: Path
    record: PodRecord
    _since: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Go on where an earlier agent stopped."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._mark = self.folder / ".since"
        with contextlib.suppress(OSError):
            self._since = self._mark.read_text()
        path = self.folder / f"stdout.{self.record.lease.rank}.log"
        self._log = RotatedLog(path=path, max_bytes=FILE_BYTES, backups=BACKUPS)
        regex = self.record.lease.progress_regex
        pattern = None if regex is None or self.record.lease.rank else re.compile(regex)
        self._progress = Progress(pattern=pattern, path=self.folder / ".progress")

    async def follow(self, client: KubernetesClient, namespace: str) -> bool:
        """Read what there is and what comes.

        Returns:
            whether that is all: the container has ended, or its pod is no more.
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
        """Take in a line that begins with its time, unless it is known."""
        stamp, _, text = line.partition(b" ")
        when = stamp.decode(errors="replace")
        if not when.endswith("Z") or sortable(when) <= sortable(self._since):
            return
        self._since = when
        self._log.write(text + b"\n")
        self._progress.search(text[:4096])
        tenant = self.record.tenant
        tenant.steps_live = max(tenant.steps_live, self._progress.steps)
        tenant.steps_done = max(tenant.steps_done, self._progress.saved)


def sortable(stamp: str) -> str:
    """Return a time such as ``2026-01-01T00:00:00.5Z`` as a text that sorts like the time."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<9}" if whole else ""


def _whole_seconds(stamp: str) -> str:
    """Return the time cut to the second, which is all that the server looks at."""
    return stamp.split(".", maxsplit=1)[0].rstrip("Z") + "Z" if stamp else ""
