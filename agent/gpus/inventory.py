"""The workers of this node: found through NVML, or declared if NVML finds no GPU."""

from __future__ import annotations

import importlib
import logging
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.domain.cluster import parse_cluster_spec
from scheduler.errors import ClusterError, InputError
from scheduler.protocol.bounds import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_log = logging.getLogger("leasehold.agent")
#: The driver's files on the device nodes of MIG instances.
CAPABILITIES = Path("/proc/driver/nvidia/capabilities")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWorker:
    """One accelerator, or one slice of it.

    Attributes:
        index: local index, from 0 without gaps.
        worker_type: its hardware class.
        device: its name in CUDA_VISIBLE_DEVICES: a number in PCI order or a MIG UUID.
        uuid: as NVML names it; None for a declared worker.
        memory_bytes: its memory; None for a declared worker.
        sharing: how two jobs can hold it at once; see ``WorkerReport``.
        nodes: device nodes by which a job reaches it, if it has any.
    """

    index: int
    worker_type: str
    device: str
    uuid: str | None = None
    memory_bytes: int | None = None
    sharing: str = "visible"
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The workers of a node and how they were found.

    Attributes:
        workers: (n,) by local index.
        nvml: the loaded NVML module, None if the workers were declared.
        missing: by local index, why a worker of before is not there.
    """

    workers: tuple[LocalWorker, ...]
    nvml: Any = None
    missing: Mapping[int, str] = field(default_factory=dict)

    def environment(self, indices: Sequence[int]) -> dict[str, str]:
        """Return the variables that show a job exactly these workers, and describe them.

        Raises:
            InputError: an index has no worker.
        """
        for index in indices:
            if not 0 <= index < len(self.workers):
                raise InputError(
                    f"there is no worker {index} on this node; it has {len(self.workers)}, "
                    "numbered from 0"
                )
        chosen = [self.workers[index] for index in indices]
        types = dict.fromkeys(worker.worker_type for worker in chosen)
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(worker.device for worker in chosen),
            "LEASEHOLD_WORKER_TYPE": ",".join(types),
        }

    def nodes(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Return the device nodes of these workers, each once."""
        return tuple(dict.fromkeys(node for i in indices for node in self.workers[i].nodes))

    def problems(self) -> dict[int, str]:
        """Ask each worker for its health; takes about a millisecond per GPU.

        Returns:
            by local index, why a worker cannot be used; healthy workers are left out.
        """
        if self.nvml is None:
            return {}
        there = [w for w in self.workers if w.index not in self.missing]
        found = {w.index: _problem(self.nvml, w) for w in there}
        return {index: text for index, text in found.items() if text} | dict(self.missing)


def declare_workers(spec: str) -> Inventory:
    """Declare workers: ``v100:4`` or ``v100:2,p100:2``.

    Raises:
        ClusterError: the spec is malformed, or has more workers than a node may report.
    """
    cluster = parse_cluster_spec(spec, named="--worker")
    count = sum(len(node.workers) for node in cluster.nodes)
    if count > MOST_WORKERS:
        raise ClusterError(
            f"--worker '{spec}' has {count} workers; a node has at most {MOST_WORKERS}"
        )
    names = [name for node in cluster.nodes for name in node.workers]
    return Inventory(
        workers=tuple(
            LocalWorker(
                index=index, worker_type=name, device=str(index), nodes=(f"/dev/nvidia{index}",)
            )
            for index, name in enumerate(names)
        )
    )


def discover_gpus(*, names: Mapping[str, str] | None = None, nvml: Any = None) -> Inventory:
    """Find the NVIDIA GPUs of this machine; a GPU in MIG mode counts as its instances.

    Args:
        names: NVML's product name -> worker type, to replace the derived one.
        nvml: the NVML module; imported when None.

    Raises:
        ClusterError: there is no NVML, no driver or no GPU; the message says what to do instead.
    """
    module = _load() if nvml is None else nvml
    try:
        module.nvmlInit()
        workers: list[LocalWorker] = []
        for position in range(module.nvmlDeviceGetCount()):
            workers += _workers_of(module, position, names or {})
    except module.NVMLError as error:
        raise ClusterError(
            f"NVML gave up: {error}; check `nvidia-smi`, or declare workers: --worker v100:4"
        ) from error
    if not workers:
        raise ClusterError(
            "NVML finds no GPU or MIG instance here; create the instances, check "
            "NVIDIA_VISIBLE_DEVICES in a container, or declare workers: --worker v100:4"
        )
    numbered = (replace(worker, index=index) for index, worker in enumerate(workers))
    return Inventory(workers=tuple(numbered), nvml=module)


def type_name(product: str) -> str:
    """Derive a worker type from a product name.

    ``NVIDIA A100-SXM4-80GB MIG 1g.10gb`` becomes ``a100-sxm4-80gb-mig-1g.10gb``.
    """
    name = re.sub(r"[^a-z0-9.]+", "-", product.lower()).strip("-")
    for brand in ("nvidia-", "tesla-", "geforce-"):
        name = name.removeprefix(brand)
    return name


def _load() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise ClusterError(
            "NVML's Python module is not installed; install nvidia-ml-py, "
            "or declare workers: --worker v100:4"
        ) from error


def _schedulable(nvml: Any, handle: Any, position: int) -> list[tuple[str | None, Any]]:
    """Return (device number or None for a slice, handle) of the GPU or of its MIG instances."""
    try:
        mode, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        mode = 0  # too old a GPU for MIG
    if not mode:
        return [(str(position), handle)]
    slices: list[tuple[str | None, Any]] = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            slices.append((None, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)))
        except nvml.NVMLError:
            continue  # instance numbers have gaps
    return slices


def _workers_of(nvml: Any, position: int, names: Mapping[str, str]) -> list[LocalWorker]:
    """Return the workers of the GPU at a position; none if it does not answer."""
    workers = []
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(position)
        for device, slice_ in _schedulable(nvml, handle, position):
            nodes = _nodes(nvml, handle, slice_, position)
            workers.append(replace(_worker(nvml, slice_, device, names), nodes=nodes))
    except nvml.NVMLError as error:  # the others can still be used
        _log.warning("GPU %d does not answer and is left out: %s", position, error)
        return []
    return workers


def _worker(nvml: Any, handle: Any, device: str | None, names: Mapping[str, str]) -> LocalWorker:
    product = _text(nvml.nvmlDeviceGetName(handle))
    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    return LocalWorker(
        index=0,
        worker_type=names.get(product) or type_name(product),
        device=uuid if device is None else device,
        uuid=uuid,
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
    )


def _nodes(nvml: Any, handle: Any, slice_: Any, position: int) -> tuple[str, ...]:
    """Return the device nodes of a GPU, or of one of its MIG instances.

    An instance is reached by the node of its GPU and by two capabilities of its own.
    """
    try:
        minor = int(nvml.nvmlDeviceGetMinorNumber(handle))
        if slice_ is handle:
            return (f"/dev/nvidia{minor}",)
        gpu = nvml.nvmlDeviceGetGpuInstanceId(slice_)
        part = CAPABILITIES / f"gpu{minor}" / "mig" / f"gi{gpu}"
        folders = part, part / f"ci{nvml.nvmlDeviceGetComputeInstanceId(slice_)}"
    except nvml.NVMLError:
        return (f"/dev/nvidia{position}",)
    texts = [(folder / "access").read_text() for folder in folders if (folder / "access").exists()]
    found = [re.search(r"DeviceFileMinor:\s*(\d+)", text) for text in texts]
    return (f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{f[1]}" for f in found if f))


def _problem(nvml: Any, worker: LocalWorker) -> str:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(worker.uuid)
        nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        return f"{worker.worker_type} {worker.uuid} does not answer: {error}"
    errors = _uncorrected_errors(nvml, handle)
    if errors:
        return (
            f"{worker.worker_type} {worker.uuid} has {errors} uncorrected memory errors since "
            "the driver was loaded; reset the GPU"
        )
    return ""


def _uncorrected_errors(nvml: Any, handle: Any) -> int:
    try:
        return int(
            nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )
    except nvml.NVMLError:
        return 0  # no ECC, or a MIG slice, which has no counter of its own


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
