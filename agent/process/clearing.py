"""Clearing up after leases: a lease has not ended while one of its processes is left.

A supervisor leaves nothing behind. If it was killed, or does not do its work, the agent kills what
is left, and checks again until a whole check finds nothing. A process that cannot be killed (in a
sleep of the kernel's, or another user's) becomes a problem of the lease's workers instead.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from agent.clock import lease_clock_s
from agent.process.remnants import (
    Traces,
    find_processes,
    find_strays,
    find_unknown,
    in_words,
    kill_processes,
    lease_folders,
    list_processes,
    reap_children,
)
from agent.process.supervisor import REMNANTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.process.record import Record
    from agent.process.remnants import Process

T = TypeVar("T")

_log = logging.getLogger("leasehold.agent")

#: After this long without success the workers have a problem, and checks are rarer.
STUCK_S: Final = 10.0
#: Between two checks of processes that are being killed, before and after that.
SOON_S: Final = 0.02
LATER_S: Final = 1.0
#: How long a supervisor without processes may take to write how the lease ended.
WRITE_S: Final = 3.0
#: How long a start of the agent may be delayed by processes of unknown leases.
UNKNOWN_S: Final = 2.0
#: Between two searches for strays while no lease has ended.
STRAYS_EVERY_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Clearing:
    """Kills leftover processes.

    Attributes:
        leases_dir: the folder of the leases' folders.
        records: the known leases, by id.
        remark: a text for people on leases that are not known any more.
        strays_s: when strays were last searched for, on the lease clock.
    """

    leases_dir: Path
    records: Mapping[int, Record]
    remark: str = ""
    strays_s: float = 0.0

    def clear(self, record: Record) -> bool:
        """Kill what is left of a lease; return whether there was anything.

        Its supervisor, if it still lives, goes last, since it identifies its descendants.
        """
        now_s = lease_clock_s()
        if record.clearing_s is not None and now_s < record.looked_s + 0.9 * self.pause_s(record):
            return True
        record.looked_s = now_s
        table = list_processes()
        supervisor = _supervisor(record)
        own, strays = find_processes(_traces(record, supervisor), table), self._kill_strays(table)
        # A stray may be known by the lease's traces, too.
        found = [process for _, process in sorted({p.pid: p for p in [*own, *strays]}.items())]
        kill_processes(found)
        if not found and supervisor is not None and supervisor in table:
            found = [table[supervisor]]
            if record.clearing_s is not None and now_s - record.clearing_s > WRITE_S:
                kill_processes(found)
        record.left = in_words(found)
        if not found:
            record.clearing_s = None
            return False
        if record.clearing_s is None:
            record.clearing_s = now_s
            _log.warning(
                "lease %d: killing its leftover processes: %s", record.lease.lease_id, record.left
            )
        return True

    def pause_s(self, record: Record) -> float:
        """Return how long to wait until the next check."""
        return LATER_S if _is_stuck(record) else SOON_S

    def problems(self) -> dict[int, str]:
        """Return by worker the process of a lease that cannot be killed."""
        found = {}
        for lease_id, record in self.records.items():
            left = ""
            if record.end is None and _is_stuck(record):
                left = record.left
            elif record.end is None and (told := record.folder.read(REMNANTS)):
                left = ", ".join(map(str, _listed(told.get("pids"), int)[:100]))
            for worker in record.lease.workers if left else ():
                found[worker] = f"processes of lease {lease_id} cannot be killed: {left}"
        return found

    def clear_strays(self) -> None:
        """Kill and reap, now and then, orphans that came to the agent without a lease's end."""
        if lease_clock_s() - self.strays_s >= STRAYS_EVERY_S:
            self._kill_strays(list_processes())

    def _kill_strays(self, table: Mapping[int, Process]) -> list[Process]:
        self.strays_s = lease_clock_s()
        supervised = {
            str(record.folder.path)
            for record in self.records.values()
            if record.end is None and _is_supervised(record)
        }
        strays = find_strays(self.leases_dir, table, supervised=supervised)
        living = [process for process in strays if process.lives]
        kill_processes(living)
        reap_children(strays)
        return living

    def clear_unknown(self) -> None:
        """Kill what an earlier agent left of leases that are not known any more."""
        known = {str(record.folder.path) for record in self.records.values()}
        end_s = lease_clock_s() + UNKNOWN_S
        while found := find_unknown(self.leases_dir, list_processes(), known=known):
            kill_processes(found)
            if lease_clock_s() > end_s:
                self.remark = f"processes of ended leases cannot be killed: {in_words(found)}"
                _log.warning("%s", self.remark)
                return
            time.sleep(SOON_S)  # nothing is served yet, and it takes UNKNOWN_S at most


def _is_stuck(record: Record) -> bool:
    since_s = record.clearing_s
    return since_s is not None and lease_clock_s() - since_s > STUCK_S


def _supervisor(record: Record) -> int | None:
    """Return the supervisor's pid while it lives."""
    if not record.folder.supervised():
        return None
    told = (record.folder.read("running.json") or {}).get("pid")
    for pid in (record.supervisor_pid, told):
        # A job could write anything there.
        if isinstance(pid, int) and str(record.folder.path) in lease_folders(pid):
            return pid
    return None


def _is_supervised(record: Record) -> bool:
    try:
        return record.folder.supervised()
    except OSError:  # its folder could not even be created
        return False


def _traces(record: Record, supervisor: int | None) -> Traces:
    # A job could write anything there, and its processes must be found all the same.
    sessions = (record.folder.read("running.json") or {}).get("groups")
    group = (record.folder.read("launch.json") or {}).get("group")
    return Traces(
        folder=record.folder.path,
        supervisor=supervisor,
        sessions={
            int(pid): ticks
            for pid, ticks in (sessions if isinstance(sessions, dict) else {}).items()
            if pid.isdecimal() and len(pid) < 10 and isinstance(ticks, int)
        },
        watched=record.watched,
        groups=tuple(_listed(group.get("folders") if isinstance(group, dict) else None, str)),
        since_ticks=record.since_ticks,
    )


def _listed(value: object, kind: type[T]) -> list[T]:
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list) else []
