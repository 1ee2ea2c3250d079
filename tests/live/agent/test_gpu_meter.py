"""How busy the GPUs of leases are, added up between looks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent.gpus.gpu_use import FREED_S, LONGEST_S, GpuMeter
from agent.gpus.inventory import Inventory, LocalWorker
from scheduler.protocol.gpu_use import GpuUse


class NVMLError(Exception):
    pass


class Driver:
    """GPUs by UUID: percent of use; None if NVML reports none."""

    NVMLError = NVMLError

    def __init__(self, **percents):
        self.percents, self.asked = percents, 0
        self.used, self.pids = dict.fromkeys(percents, 100), {}

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        self.asked += 1
        if self.percents[handle] is None:
            raise NVMLError("Not Supported")
        return SimpleNamespace(gpu=self.percents[handle])

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(used=self.used[handle])

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        if handle not in self.pids:
            raise NVMLError("Not Supported")
        return [SimpleNamespace(pid=pid) for pid in self.pids[handle]]


def meter_of(driver):
    workers = tuple(
        LocalWorker(index=i, worker_type="v100", device=str(i), uuid=uuid, memory_bytes=400)
        for i, uuid in enumerate(driver.percents)
    )
    return GpuMeter(Inventory(workers=workers, nvml=driver))


def test_use_adds_up_over_gpus_and_time():
    driver = Driver(a=50, b=100)
    meter = meter_of(driver)
    meter.look({7: (0, 1)}, 0.0)
    assert meter.of(7) is None, "one look is no time yet"
    meter.look({7: (0, 1)}, 10.0)
    assert meter.of(7) == GpuUse(used_s=15.0, measured_s=20.0, memory_bytes=200)
    driver.percents["b"] = 0
    meter.look({7: (0, 1)}, 14.0)
    assert meter.of(7) == GpuUse(used_s=17.0, measured_s=28.0, memory_bytes=200)


def test_a_lease_with_a_gpu_of_which_nothing_is_known_is_not_told():
    meter = meter_of(Driver(a=50, b=None))
    for at_s in (0.0, 10.0):
        meter.look({7: (0, 1), 8: (0,)}, at_s)
    assert meter.of(7) is None
    assert meter.of(8) == GpuUse(used_s=5.0, measured_s=10.0, memory_bytes=100)


def test_a_gpu_is_asked_once_for_all_that_share_it_and_never_without_a_lease():
    driver = Driver(a=50, b=50)
    meter = meter_of(driver)
    meter.look({}, 0.0)
    assert driver.asked == 0
    meter.look({7: (0,), 8: (0,)}, 1.0)
    assert driver.asked == 1


def test_a_lease_that_has_ended_is_forgotten():
    meter = meter_of(Driver(a=50))
    for at_s in (0.0, 10.0):
        meter.look({7: (0,)}, at_s)
    meter.look({}, 20.0)
    assert meter.of(7) is None


def test_a_machine_that_has_slept_counts_little_of_it():
    meter = meter_of(Driver(a=50))
    for at_s in (0.0, 10_000.0):
        meter.look({7: (0,)}, at_s)
    use = meter.of(7)
    assert use is not None
    assert use.measured_s == pytest.approx(LONGEST_S)


def test_memory_of_processes_without_a_lease_is_seen_on_idle_gpus_only():
    driver = Driver(a=50, b=0)
    meter = meter_of(driver)
    meter.look({}, 0.0)
    assert meter.foreign == {}, "a quarter of the memory, such as a desktop takes"
    driver.used["b"], driver.pids["b"] = 300, [12, 7]
    meter.look({}, 2.0)
    assert meter.foreign.keys() == {1}
    assert "v100 b: processes without a lease (7, 12) use" in meter.foreign[1]
    driver.used["a"] = 300
    meter.look({7: (0, 1)}, 4.0)
    assert meter.foreign == {}
    meter.look({7: (0,)}, 4.0 + FREED_S)
    assert meter.foreign == {}, "the driver may still free what the lease held"
    meter.look({7: (0,)}, 4.5 + FREED_S)
    assert meter.foreign.keys() == {1}
