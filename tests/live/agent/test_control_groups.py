"""Control groups: their places, their files, and the kernel's actions."""

from __future__ import annotations

import asyncio
import os

import pytest

from agent.process.control_groups import LEAF, ControlGroups, find_groups
from agent.process.inheritance import MOST_PROCESSES
from agent.process.supervisor import MEMORY_ERRORS, group_members, kill_members, oom_kills
from scheduler.domain.lease_life import EndReason

V2 = "0::/service\n"
HUNGRY = """
import time
print("up", flush=True)
hoard = []
while True:
    hoard.append(bytearray(b"x") * 2**20)
"""


@pytest.fixture
def version_2(tmp_path):
    """A delegated group as the kernel would show it; files instead of switches."""
    service = tmp_path / "mount" / "service"
    service.mkdir(parents=True)
    (service / "cgroup.controllers").write_text("cpu memory pids\n")
    (service / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (service / "cgroup.subtree_control").write_text("")
    return service


def test_the_agent_moves_into_a_leaf_and_leases_get_groups_beside_it(tmp_path, version_2):
    groups = find_groups(tmp_path, membership=V2, mount=tmp_path / "mount")
    assert (groups.version, groups.problem) == (2, "")
    assert (version_2 / LEAF / "cgroup.procs").read_text() == str(os.getpid())
    assert (version_2 / "cgroup.subtree_control").read_text() == "+pids"
    (version_2 / f"{groups.prefix}7").mkdir()
    (version_2 / f"{groups.prefix}7" / "pids.max").write_text("max")  # as the kernel makes it
    group = groups.make(7, memory_bytes=2**30, cpus=1.5)
    (folder,) = group.folders
    assert folder.parent == version_2
    assert (folder / "memory.max").read_text() == str(2**30)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "memory.oom.group").read_text() == "1"
    assert (folder / "cpu.max").read_text() == "150000 100000"
    assert (folder / "pids.max").read_text() == str(MOST_PROCESSES)
    assert group.events == folder / "memory.events"
    unlimited = groups.make(8, memory_bytes=None, cpus=None)
    assert not (unlimited.folders[0] / "memory.max").exists()


def test_an_agent_in_a_leaf_of_its_own_makes_groups_beside_it(tmp_path, version_2):
    leaf = version_2 / LEAF
    leaf.mkdir()
    (leaf / "cgroup.controllers").write_text("memory")
    (version_2 / "cgroup.subtree_control").write_text("memory")
    membership = f"0::/service/{LEAF}\n"
    groups = find_groups(tmp_path, membership=membership, mount=tmp_path / "mount")
    assert groups.roots == {"memory": version_2, "cpu": version_2}


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("cgroup.procs", "1\n2\n", "other processes"),
        ("cgroup.controllers", "pids", "no controller of memory"),
        ("cgroup.controllers", None, "No such file"),
    ],
)
def test_why_there_are_no_groups_is_said(tmp_path, version_2, file, text, words):
    (version_2 / file).unlink()
    if text is not None:
        (version_2 / file).write_text(text)
    groups = find_groups(tmp_path, membership=V2, mount=tmp_path / "mount")
    assert groups.problem.startswith("limits of memory and processors are not enforced: ")
    assert words in groups.problem
    assert groups.make(1, memory_bytes=1, cpus=None) is None
    groups.clear({})


def test_a_service_of_systemd_needs_a_subgroup(tmp_path, version_2):
    version_2.rename(version_2.with_name("x.service"))
    groups = find_groups(tmp_path, membership="0::/x.service\n", mount=tmp_path / "mount")
    assert "DelegateSubgroup=agent" in groups.problem
    assert not (tmp_path / "mount" / "x.service" / LEAF).exists()


def test_a_machine_without_control_groups_has_none(tmp_path):
    assert "in sight" in find_groups(tmp_path, membership="", mount=tmp_path).problem


def test_version_1_has_a_group_per_controller_and_only_for_limits(tmp_path):
    for name in ("memory", "cpu,cpuacct"):
        (tmp_path / name / "own").mkdir(parents=True)
    text = "5:cpu,cpuacct:/own\n4:memory:/own\n0::/\n"
    groups = find_groups(tmp_path, membership=text, mount=tmp_path)
    assert groups.version == 1
    assert groups.make(1, memory_bytes=None, cpus=None) is None
    group = groups.make(2, memory_bytes=4096, cpus=0.25)
    memory, cpu = group.folders
    assert memory.parent == tmp_path / "memory" / "own"
    assert (memory / "memory.limit_in_bytes").read_text() == "4096"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "25000"
    assert group.to_dict()["events"] == str(memory / "memory.oom_control")


def test_a_limit_that_the_kernel_refuses_leaves_no_group(tmp_path):
    (tmp_path / "memory").mkdir()
    blocked = ControlGroups(roots={"memory": tmp_path / "memory" / "gone"}, version=1, prefix="x-")
    with pytest.raises(FileNotFoundError):
        blocked.make(1, memory_bytes=1, cpus=None)
    assert list((tmp_path / "memory").iterdir()) == []


def test_members_are_killed_one_by_one_where_the_kernel_has_no_switch(tmp_path):
    import subprocess
    import sys

    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (tmp_path / "cgroup.procs").write_text(f"{sleeper.pid}\n{2**22 + 1}\n")
    assert group_members([str(tmp_path), str(tmp_path / "gone")]) == [sleeper.pid, 2**22 + 1]
    assert kill_members([str(tmp_path)])
    assert sleeper.wait(10) == -9
    assert kill_members([str(tmp_path)], str(tmp_path / "kill"))
    assert (tmp_path / "kill").read_text() == "1"
    assert not kill_members([])


def test_kills_are_counted_in_the_file_of_the_lease(tmp_path):
    (tmp_path / "events").write_text("low 0\noom 1\noom_kill 3\noom_group_kill 0\n")
    assert oom_kills(str(tmp_path / "events")) == 3
    assert oom_kills(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7 TiB",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
        "MemoryError",
        "NCCL WARN Cuda failure 'out of memory'",
        "NCCL WARN Cuda failure 2 'out of memory'",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: cuda runtime error (2) : out of memory at THCStorage.cu:66",
        "RuntimeError: HIP error: out of memory",
        "ggml_cuda: cudaMalloc failed: out of memory",
        "hipErrorOutOfMemory",
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: MPS backend out of memory (MPS allocated: 9.00 GB)",
        "RuntimeError: Native API failed: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "W tensorflow: OP_REQUIRES failed: RESOURCE_EXHAUSTED: OOM when allocating tensor",
        "OSError: [Errno 12] Cannot allocate memory",
        "fork/exec /bin/true: cannot allocate memory",
        "fatal error: runtime: out of memory",
        "memory allocation of 8589934592 bytes failed",
        "CUDA Error: out of memory",
        "Cuda error: Out of memory",
        "CUDA runtime API error 2: out of memory",
        "CUDA_ERROR: out of memory",
        "cudaMalloc() failed: out of memory",
        "jax: RESOURCE_EXHAUSTED: Failed to allocate request for 2.0GiB",
        "cuFFT error: CUFFT_ALLOC_FAILED",
    ],
)
def test_out_of_memory_is_told_from_the_words_of_many_libraries(line):
    assert MEMORY_ERRORS.search(b"Traceback\n" + line.encode())


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: no memory of that name; MemoryErrors: 0",
        "UserWarning: lower the batch size if CUDA runs out of memory",
        "hint: this keeps the GPU from going out of memory",
        "RuntimeError: CUDA error: device-side assert triggered",
        "OSError: libgomp.so.1: cannot allocate memory in static TLS block",
        "membership failed: out of memory of the peer",
        "a CUDA error occurs if you run out of memory",
    ],
)
def test_talk_of_memory_is_no_sign_that_there_was_none(line):
    assert not MEMORY_ERRORS.search(line.encode())


def test_a_job_over_its_limit_is_ended_by_the_kernel_and_counts_as_out_of_memory(node):
    groups = find_groups(node.folder)
    if groups.problem:
        pytest.skip(groups.problem)

    async def main():
        node.want(
            node.lease(1, HUNGRY, memory_bytes=64 * 2**20),
            node.lease(2, "print('small')", memory_bytes=256 * 2**20, cpus=1.0, workers=(1,)),
        )
        async with node.agent(groups=groups):
            report = await node.until(lambda: node.ended(1))
            assert (await node.until(lambda: node.ended(2))).reason is EndReason.COMPLETED
        assert (report.reason, report.exit_code) == (EndReason.OOM, -9)
        assert "limit of host memory" in report.message

    asyncio.run(asyncio.wait_for(main(), 50))
    for root in groups.roots.values():
        assert list(root.glob(f"{groups.prefix}*")) == []


def test_groups_that_a_dead_agent_left_are_removed_unless_their_leases_are_known(node):
    groups = find_groups(node.folder)
    if groups.problem:
        pytest.skip(groups.problem)
    left = [groups.make(number, memory_bytes=2**30, cpus=None) for number in (1, 2)]
    groups.clear({2})
    assert [all(f.exists() for f in g.folders) for g in left] == [False, True]
    groups.clear({})
    assert not any(f.exists() for g in left for f in g.folders)
