"""The GPUs that a node had before: one that is missing keeps its index and is reported.

Without that a node that starts with three of four GPUs would have other workers than before, and
its jobs on the three would end with them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.gpus.inventory import Inventory, LocalWorker
from agent.logs.job_output import SPOILT, read_regular, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The file in the agent's folder.
FILE = "gpus.json"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGpu:
    """A GPU, or an instance of MIG, that the node had when its agent last started.

    Attributes:
        uuid: as NVML names it.
        worker_type: its hardware class.
        memory_bytes: its memory; None if it is not known.
    """

    uuid: str
    worker_type: str
    memory_bytes: int | None = None


def keep_indices(found: Inventory, path: Path) -> Inventory:
    """Return the found workers by their indices of before, with those that are missing.

    A new GPU takes the index of a missing one of its type, or the next index if none is missing.
    If neither is possible, the hardware was changed and the found GPUs count.

    Args:
        found: by NVML; declared workers are returned unchanged.
        path: where the GPUs are stored for the next start.
    """
    if found.nvml is None:
        return found
    known = _read(path)
    merged = _merge(found.workers, known) or found.workers
    there = {worker.uuid for worker in found.workers}
    missing = {
        worker.index: (
            f"{worker.worker_type} {worker.uuid} was there before and was missing when the agent "
            f"started; check the GPU and restart the agent, or delete {path} if it was taken out"
        )
        for worker in merged
        if worker.uuid not in there
    }
    _write(path, merged)
    return replace(found, workers=merged, missing=missing)


def _merge(
    found: Sequence[LocalWorker], known: Sequence[KnownGpu]
) -> tuple[LocalWorker, ...] | None:
    """Return the workers by index; None if known and found GPUs do not fit together."""
    by_uuid = {worker.uuid: worker for worker in found}
    before = {gpu.uuid for gpu in known}
    new = [worker for worker in found if worker.uuid not in before]
    places: list[LocalWorker | None] = []
    for gpu in known:
        same = (worker for worker in new if worker.worker_type == gpu.worker_type)
        worker = by_uuid.get(gpu.uuid) or next(same, None)
        if worker in new:
            new.remove(worker)
        places.append(worker)
    if new and None in places:
        return None
    workers = [worker or _missing(gpu) for worker, gpu in zip(places, known, strict=True)] + new
    return tuple(replace(worker, index=index) for index, worker in enumerate(workers))


def _missing(gpu: KnownGpu) -> LocalWorker:
    return LocalWorker(
        index=0,
        worker_type=gpu.worker_type,
        device=gpu.uuid,
        uuid=gpu.uuid,
        memory_bytes=gpu.memory_bytes,
    )


def _read(path: Path) -> tuple[KnownGpu, ...]:
    """Return the stored GPUs; none if there are none, or the file is spoilt."""
    try:
        stored: dict[str, Any] = json.loads(read_regular(path, _MOST_BYTES))
        return tuple(
            KnownGpu(
                uuid=str(gpu["uuid"]),
                worker_type=str(gpu["worker_type"]),
                memory_bytes=gpu.get("memory_bytes"),
            )
            for gpu in stored["gpus"]
        )
    except SPOILT:
        return ()


def _write(path: Path, workers: Sequence[LocalWorker]) -> None:
    gpus = [
        {"uuid": w.uuid, "worker_type": w.worker_type, "memory_bytes": w.memory_bytes}
        for w in workers
    ]
    write_json(path, {"gpus": gpus})
