"""The job of the soak test: counts steps under a lease, and leaves evidence of all that it does.

Its state is a ledger of the steps that count: ``[step, token]`` each, kept in the checkpoints. What
happened, counted or not, goes to a file of its own, one line per write, so that several processes
may write at once and none can change what another one wrote. Standard library only;
starts in 60 ms.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

from leasehold.iterator import LeaseIterator

#: How long rank 1 of a gang looks for rank 0, longer than any lease lasts without renewal.
MEET_S = 60.0


class Evidence:
    """Appends what this process does to a file."""

    def __init__(self, path: Path) -> None:
        self.token = int(os.environ["LEASEHOLD_FENCING_TOKEN"])
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        folder = Path(os.environ["LEASEHOLD_LEASE_FOLDER"])
        self._same = {
            "node": folder.parent.parent.name,  # each agent's state folder has its node's name
            "worker": int(
                os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
            ),
            "rank": int(os.environ["RANK"]),
            "lease": int(os.environ["LEASEHOLD_LEASE_ID"]),
            "attempt": int(os.environ["LEASEHOLD_ATTEMPT"]),
            "token": self.token,
            "pid": os.getpid(),
        }

    def write(self, kind: str, step: int) -> None:
        """Append one line, in one call."""
        at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        line = {"at_s": at_s, "kind": kind, "step": step} | self._same
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Lockstep:
    """The mates of a gang of two: neither goes on before the other has done the same step."""

    def __init__(self) -> None:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._peer = self._listen(address) if os.environ["RANK"] == "0" else self._find(address)
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _listen(self, address: tuple[str, int]) -> socket.socket:
        with socket.create_server(address) as server:
            return server.accept()[0]

    def _find(self, address: tuple[str, int]) -> socket.socket:
        until = time.monotonic() + MEET_S
        while True:
            try:
                return socket.create_connection(address, timeout=MEET_S)
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def meet(self, step: int) -> int:
        """Wait for the mate, as a collective operation does; a mate that is gone is an error.

        Returns:
            how many steps the mate has done.
        """
        self._peer.sendall(step.to_bytes(4))
        answer = self._peer.recv(4, socket.MSG_WAITALL)
        if len(answer) < 4:
            raise ConnectionError("the other process of the gang is gone")
        return int.from_bytes(answer)


def plain(evidence: Evidence, step_s: float) -> None:
    """Do the steps like a program that knows nothing of leases: SIGTERM ends it at once."""
    total, token = int(os.environ["LEASEHOLD_TOTAL_STEPS"]), evidence.token
    folder = Path(os.environ["LEASEHOLD_CHECKPOINT_DIR"])
    rank = int(os.environ["RANK"])
    ledger: list[list[int]] = []
    newest = max(folder.glob("step-*"), default=None)
    if newest is not None:
        ledger = json.loads((newest / "ledger.json").read_text())
    lockstep = None if os.environ["WORLD_SIZE"] == "1" else Lockstep()
    if lockstep is not None and rank:
        del ledger[lockstep.meet(len(ledger)) :]
    elif lockstep is not None:
        lockstep.meet(len(ledger))
    if ledger:
        evidence.write("load", len(ledger))
    while len(ledger) < total:
        time.sleep(step_s)
        if lockstep is not None:
            lockstep.meet(len(ledger))
        ledger.append([len(ledger) + 1, token])
        evidence.write("step", len(ledger))
        if rank == 0 and (len(ledger) % 4 == 0 or len(ledger) == total):
            evidence.write("save", len(ledger))
            half = folder / f".half-{token}"
            half.mkdir(exist_ok=True)
            (half / "ledger.json").write_text(json.dumps(ledger))
            half.rename(folder / f"step-{len(ledger):012d}")
            Path("progress").write_text(f"{len(ledger)}\n")
    evidence.write("exit", len(ledger))


def leased(evidence: Evidence, step_s: float, long_step_s: float) -> None:
    """Do the steps, every tenth of which may take longer than a job is given to leave."""
    token = evidence.token
    ledger: list[list[int]] = []

    def save(folder: Path) -> None:
        evidence.write("save", len(ledger))
        (folder / "ledger.json").write_text(json.dumps(ledger))

    def load(folder: Path) -> None:
        ledger[:] = json.loads((folder / "ledger.json").read_text())
        evidence.write("load", len(ledger))

    steps = LeaseIterator(
        lambda step: iter(range(step, sys.maxsize)),
        save=save,
        load=load,
        checkpoint_every_s=1.5,
        report_every_s=0.3,
    )
    lockstep: Lockstep | None = None
    try:
        for step in steps:
            if lockstep is None and os.environ["WORLD_SIZE"] != "1":
                lockstep = Lockstep()
            time.sleep(long_step_s if step % 10 == 9 else step_s)
            if lockstep is not None:
                lockstep.meet(step)
            ledger.append([step + 1, token])
            evidence.write("step", step + 1)
    finally:
        evidence.write("exit", steps.step)


def main() -> None:
    """Read the arguments: the file of the evidence, ``plain`` or ``leased``, times of steps."""
    evidence = Evidence(Path(sys.argv[1]))
    evidence.write("start", 0)
    step_s, long_step_s = float(sys.argv[3]), float(sys.argv[4])
    if sys.argv[2] == "plain":
        plain(evidence, step_s)
    else:
        leased(evidence, step_s, long_step_s)


if __name__ == "__main__":
    main()
