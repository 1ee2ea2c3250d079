"""A job of the tests: linear regression, alone or as a gang that exchanges gradients over TCP.

Every step leaves a line in a journal beside the checkpoints, which Leasehold knows nothing of: the
tests count steps there, and compare the weights with those of an undisturbed run.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

import numpy as np

from leasehold import LeaseIterator

FEATURES, BATCH = 16, 64
RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = Path(os.environ["LEASEHOLD_CHECKPOINT_DIR"])
STEP_S = float(os.environ.get("STEP_S", "0.05"))
RENDEZVOUS_S = 60.0


class Mates:
    """The way to the other members of the gang: rank 0 receives from all and sends to all.

    Attributes:
        seen: addresses of the mates.
    """

    def __init__(self) -> None:
        self._links: list[socket.socket] = []
        self.seen: list[str] = []
        if WORLD_SIZE == 1:
            return
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if RANK == 0:
            with socket.create_server(("", port)) as server:
                server.settimeout(RENDEZVOUS_S)
                for _ in range(WORLD_SIZE - 1):
                    link, address = server.accept()
                    self._links.append(link)
                    self.seen.append(address[0])
        else:
            self._links.append(_reach(host, port))
            self.seen.append(self._links[0].getpeername()[0])
        for link in self._links:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def mean(self, own: np.ndarray) -> np.ndarray:
        """Return the mean of what all members bring, the same for each to the last bit."""
        if not self._links:
            return own
        if RANK:
            self._links[0].sendall(own.tobytes())
            return _receive(self._links[0], own)
        total = sum((_receive(link, own) for link in self._links), start=own)
        for link in self._links:
            link.sendall((total / WORLD_SIZE).tobytes())
        return total / WORLD_SIZE


def _reach(host: str, port: int) -> socket.socket:
    until = time.monotonic() + RENDEZVOUS_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=RENDEZVOUS_S)
        except OSError as error:  # its name or its port is not there yet
            if time.monotonic() > until:
                raise TimeoutError(f"{host}:{port} cannot be reached: {error}") from error
            time.sleep(0.2)


def _receive(link: socket.socket, like: np.ndarray) -> np.ndarray:
    data = b""
    while len(data) < like.nbytes:
        piece = link.recv(like.nbytes - len(data))
        if not piece:
            raise ConnectionError("a member of the gang has gone")
        data += piece
    return np.frombuffer(data, dtype=like.dtype)


def gradient(step: int, rank: int, weights: np.ndarray) -> np.ndarray:
    """Return the gradient of a member's batch; batches depend on step and rank alone."""
    truth = np.random.default_rng(0).normal(size=FEATURES)
    inputs = np.random.default_rng((1, step, rank)).normal(size=(BATCH, FEATURES))
    return inputs.T @ (inputs @ weights - inputs @ truth) / BATCH


def main() -> int:
    """Train."""
    state = {"weights": np.zeros(FEATURES), "times_done": np.zeros(0, dtype=np.int64)}
    steps = LeaseIterator(
        lambda first: iter(range(first, sys.maxsize)),
        save=lambda folder: np.savez(folder / "state.npz", **state),
        load=lambda folder: state.update(np.load(folder / "state.npz")),
        checkpoint_every_s=2.0,
    )
    state["times_done"] = np.zeros(steps.total_steps, dtype=np.int64)
    FOLDER.mkdir(parents=True, exist_ok=True)
    mates = Mates()
    told = {name: os.environ[f"LEASEHOLD_{name.upper()}"] for name in ("attempt", "lease_id")}
    told |= {"type": os.environ["LEASEHOLD_WORKER_TYPE"], "pod": socket.gethostname()}
    told |= {"rank": RANK, "mates": mates.seen}
    told |= {"devices": os.environ.get("NVIDIA_VISIBLE_DEVICES", "")}  # the device plugin says it
    with (FOLDER / f"journal-{RANK}.jsonl").open("a", buffering=1) as journal:
        for step in steps:
            began_s = time.clock_gettime(time.CLOCK_BOOTTIME)  # one clock on all nodes here
            own = gradient(step, RANK, state["weights"])
            state["weights"] = state["weights"] - 0.1 * mates.mean(own)
            state["times_done"][step] += 1
            journal.write(json.dumps({"step": step, "began_s": began_s, **told}) + "\n")
            if step % 20 == 0:
                print(f"step {step}", flush=True)
            time.sleep(STEP_S)
    if RANK == 0:
        np.savez(FOLDER / "result.npz", **state)
    print(f"done: {steps.step} steps", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
