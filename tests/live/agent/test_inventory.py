"""Workers found by a fake NVML, and declared ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent.gpus.inventory import (
    Inventory,
    LocalWorker,
    declare_workers,
    discover_gpus,
    type_name,
)
from agent.gpus.known_gpus import keep_indices
from scheduler.errors import ClusterError, InputError


class _NVMLError(Exception):
    pass


class FakeNVML:
    """Two whole GPUs and one in MIG mode with a gap among its instances."""

    NVMLError = _NVMLError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def __init__(self, *, gpus=("v100", "v100", "mig"), broken=()):
        self.gpus, self.broken, self.ecc = gpus, set(broken), {}

    def nvmlInit(self):  # noqa: N802
        if "init" in self.broken:
            raise _NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, position):  # noqa: N802
        if position in self.broken:
            raise _NVMLError("GPU is lost")
        return f"GPU-{position}"

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid in self.broken:
            raise _NVMLError("GPU is lost")
        return uuid

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        if self.gpus[int(handle[4:])] == "v100":
            raise _NVMLError("not supported")
        return 1, 1

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):  # noqa: N802
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, number):  # noqa: N802
        if number == 1:
            raise _NVMLError("not found")
        return f"MIG-{handle}-{number}"

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        if handle.startswith("MIG"):
            return "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
        return b"Tesla V100-SXM2-16GB"

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(total=16 * 2**30)

    def nvmlDeviceGetMinorNumber(self, handle):  # noqa: N802
        return {"GPU-0": 1, "GPU-1": 0, "GPU-2": 2}[handle]  # not in PCI order

    def nvmlDeviceGetGpuInstanceId(self, handle):  # noqa: N802
        return 7 + int(handle[-1])

    def nvmlDeviceGetComputeInstanceId(self, handle):  # noqa: N802
        if "instances" in self.broken:
            raise _NVMLError("not supported")
        return 0

    def nvmlDeviceGetTotalEccErrors(self, handle, kind, counter):  # noqa: N802
        if handle.startswith("MIG"):
            raise _NVMLError("not supported")
        return self.ecc.get(handle, 0)


def test_whole_gpus_and_mig_instances_are_workers():
    inventory = discover_gpus(nvml=FakeNVML())
    assert [w.worker_type for w in inventory.workers] == [
        "v100-sxm2-16gb",
        "v100-sxm2-16gb",
        "a100-sxm4-80gb-mig-1g.10gb",
        "a100-sxm4-80gb-mig-1g.10gb",
    ]
    assert [w.index for w in inventory.workers] == [0, 1, 2, 3]
    assert inventory.environment([1, 3]) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1,MIG-GPU-2-2",
        "LEASEHOLD_WORKER_TYPE": "v100-sxm2-16gb,a100-sxm4-80gb-mig-1g.10gb",
    }


def test_workers_are_reached_by_their_own_device_nodes(tmp_path, monkeypatch):
    monkeypatch.setattr("agent.gpus.inventory.CAPABILITIES", tmp_path)
    for number, folder in enumerate(("gi7", "gi7/ci0", "gi9", "gi9/ci0")):
        path = tmp_path / "gpu2" / "mig" / folder
        path.mkdir(parents=True)
        (path / "access").write_text(f"DeviceFileMinor: {30 + number}\nDeviceFileMode: 444\n")
    caps = "/dev/nvidia-caps/nvidia-cap"
    inventory = discover_gpus(nvml=FakeNVML())
    assert inventory.nodes([0, 1]) == ("/dev/nvidia1", "/dev/nvidia0")
    assert inventory.nodes([2]) == ("/dev/nvidia2", f"{caps}30", f"{caps}31")
    assert inventory.nodes([2, 3]) == ("/dev/nvidia2", *(f"{caps}{n}" for n in (30, 31, 32, 33)))
    unknown = discover_gpus(nvml=FakeNVML(broken=["instances"]))
    assert unknown.nodes([0, 3]) == ("/dev/nvidia1", "/dev/nvidia2")
    assert declare_workers("v100:3").nodes([2]) == ("/dev/nvidia2",)


def test_types_can_be_given_other_names():
    inventory = discover_gpus(nvml=FakeNVML(gpus=("v100",)), names={"Tesla V100-SXM2-16GB": "v100"})
    assert inventory.workers[0].worker_type == "v100"


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (FakeNVML(broken=["init"]), "driver not loaded.*--worker v100:4"),
        (FakeNVML(gpus=()), "no GPU.*--worker v100:4"),
    ],
)
def test_without_gpus_the_message_says_how_to_declare_workers(nvml, words):
    with pytest.raises(ClusterError, match=words):
        discover_gpus(nvml=nvml)


def test_a_lost_gpu_and_one_with_memory_errors_are_named():
    nvml = FakeNVML()
    inventory = discover_gpus(nvml=nvml)
    assert inventory.problems() == {}
    nvml.broken.add("GPU-0")
    nvml.ecc["GPU-1"] = 2
    problems = inventory.problems()
    assert problems.keys() == {0, 1}
    assert "GPU is lost" in problems[0]
    assert "2 uncorrected memory errors" in problems[1]


def test_declared_workers_are_numbered_through():
    inventory = declare_workers("v100:2,p100:5")
    assert [w.worker_type for w in inventory.workers] == ["v100"] * 2 + ["p100"] * 5
    assert inventory.environment([0, 6])["CUDA_VISIBLE_DEVICES"] == "0,6"
    assert inventory.problems() == {}
    with pytest.raises(InputError, match="no worker 7"):
        inventory.environment([7])
    with pytest.raises(ClusterError, match="--worker 'v100': 'v100' is not type:count"):
        declare_workers("v100")
    with pytest.raises(ClusterError, match="has 100000 workers; a node has at most 4096"):
        declare_workers("v100:100000")


def test_type_names_are_short_and_lower_case():
    assert type_name("NVIDIA GeForce RTX 4090") == "rtx-4090"
    assert type_name("NVIDIA H200") == "h200"


class Machine:
    """GPUs by UUID and type, as an agent finds them at each start."""

    def __init__(self, folder):
        self._path = folder / "gpus.json"

    def start(self, *gpus):
        found = tuple(
            LocalWorker(index=i, worker_type=kind, device=str(i), uuid=uuid)
            for i, (uuid, kind) in enumerate(gpu.split(":") for gpu in gpus)
        )
        kept = keep_indices(Inventory(workers=found, nvml=FakeNVML()), self._path)
        assert [w.index for w in kept.workers] == list(range(len(kept.workers)))
        return kept


def test_a_lost_gpu_does_not_keep_the_others_from_work():
    inventory = discover_gpus(nvml=FakeNVML(broken=[0]))
    assert [w.uuid for w in inventory.workers] == ["GPU-1", "MIG-GPU-2-0", "MIG-GPU-2-2"]
    assert [w.index for w in inventory.workers] == [0, 1, 2]
    with pytest.raises(ClusterError, match="finds no GPU"):
        discover_gpus(nvml=FakeNVML(gpus=("v100",), broken=[0]))


def test_a_missing_gpu_keeps_its_index_and_is_reported(tmp_path):
    machine = Machine(tmp_path)
    assert not machine.start("a:v100", "b:v100", "c:k80").missing
    kept = machine.start("a:v100", "c:k80")
    assert [w.uuid for w in kept.workers] == ["a", "b", "c"]
    assert [w.device for w in kept.workers] == ["0", "b", "1"], "the driver's numbers of now"
    assert kept.missing.keys() == kept.problems().keys() == {1}
    assert "v100 b was there before" in kept.missing[1]
    assert f"delete {tmp_path / 'gpus.json'}" in kept.missing[1]
    assert not machine.start("a:v100", "b:v100", "c:k80").missing


def test_a_new_gpu_takes_the_index_of_a_missing_one_of_its_type(tmp_path):
    machine = Machine(tmp_path)
    machine.start("a:v100", "b:v100")
    kept = machine.start("b:v100", "n:v100")
    assert [w.uuid for w in kept.workers] == ["n", "b"]
    assert not kept.missing
    added = machine.start("b:v100", "m:v100", "n:v100")
    assert [w.uuid for w in added.workers] == ["n", "b", "m"], "none is missing: the next index"


def test_other_hardware_counts_as_it_is_found(tmp_path):
    machine = Machine(tmp_path)
    machine.start("a:v100", "b:v100")
    kept = machine.start("h:h100")
    assert [w.uuid for w in kept.workers] == ["h"]
    assert not kept.missing


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"gpus": [{}]}', "\x00"])
def test_a_spoilt_list_of_gpus_counts_as_none(tmp_path, text):
    (tmp_path / "gpus.json").write_text(text)
    assert [w.uuid for w in Machine(tmp_path).start("a:v100").workers] == ["a"]


def test_declared_workers_are_not_stored(tmp_path):
    declared = declare_workers("v100:2")
    assert keep_indices(declared, tmp_path / "gpus.json") is declared
    assert not (tmp_path / "gpus.json").exists()
