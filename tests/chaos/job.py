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
            "token": int(os.environ["LEASEHOLD_FENCING_TOKEN"]),
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

    def meet(self) -> None:
        """Wait for the mate, as a collective operation does; a mate that is gone is an error."""
        self._peer.sendall(b".")
        if not self._peer.recv(1):
            raise ConnectionError("the other process of the gang is gone")


def main(evidence_file: Path, step_s: float, long_step_s: float) -> None:
    """Do the steps, every tenth of which may take longer than a job is given to leave."""
    evidence = Evidence(evidence_file)
    evidence.write("start", 0)
    token = int(os.environ["LEASEHOLD_FENCING_TOKEN"])
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
                lockstep.meet()
            ledger.append([step + 1, token])
            evidence.write("step", step + 1)
    finally:
        evidence.write("exit", steps.step)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
