"""A link for tests: the desired set lies in a file, and reports are written to another."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.clock import lease_clock_s
from agent.logs.job_output import write_json
from scheduler.domain.lease_life import LeasePhase
from scheduler.protocol.desired import desired_from_dict, to_dict

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.protocol.desired import Desired
    from scheduler.protocol.reports import NodeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLink:
    """Reads ``desired.json`` and writes ``report.json`` in a folder.

    Without ``desired.json`` the scheduler counts as unreachable.

    Attributes:
        folder: the folder of the two files.
        poll_s: between two looks.
        hold_s: after this long without news the same set is returned again.
    """

    folder: Path
    poll_s: float = 0.02
    hold_s: float = 0.2

    async def desired(self, *, after: tuple[int, int], instance: str = "") -> Desired:
        """Return the desired set of the file; see ``agent.loop.Link``."""
        asked_s = lease_clock_s()
        while True:
            desired = self._read()
            held_s = lease_clock_s() - asked_s
            if (desired.term, desired.revision) > after or held_s >= self.hold_s:
                return replace(desired, held_s=held_s)
            await asyncio.sleep(self.poll_s)

    def publish(self, desired: Desired) -> None:
        """Let this be the desired set from now on; its durations begin now."""
        message = {"published_s": lease_clock_s(), "desired": to_dict(desired)}
        write_json(self.folder / "desired.json", message)

    async def report(self, report: NodeReport) -> None:
        """Replace the report's file, and keep the report of each end: the next one may lack it."""
        self._read()
        message = to_dict(report)
        write_json(self.folder / "report.json", message)
        for lease in report.leases:
            if lease.state is LeasePhase.ENDED:
                write_json(self.folder / f"ended-{lease.lease_id}.json", message)

    async def append_log(
        self,
        lease_id: int,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end: bool = False,
        nonce: str = "",
    ) -> int:
        """Append to ``received/LEASE.STREAM`` what follows that; ``.end`` marks its end.

        A nonce follows the lease's number.
        """
        self._read()
        path = self.folder / "received" / f"{lease_id}{nonce}.{stream}"
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            if file.tell() == offset:
                file.write(data)
            if end and file.tell() == offset + len(data):
                path.with_name(f"{path.name}.end").touch()
            return file.tell()

    def _read(self) -> Desired:
        try:
            text = (self.folder / "desired.json").read_text()
        except FileNotFoundError as error:
            raise ConnectionRefusedError(f"{self.folder} has no desired.json") from error
        message = json.loads(text)
        desired = desired_from_dict(message["desired"])
        age_s = lease_clock_s() - message["published_s"]
        return replace(
            desired,
            leases=tuple(
                replace(
                    lease,
                    remaining_s=lease.remaining_s - age_s,
                    notice_in_s=None if lease.notice_in_s is None else lease.notice_in_s - age_s,
                )
                for lease in desired.leases
            ),
        )
