"""Real processes under real leases, by an agent with a file as scheduler."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import replace

import pytest

from agent.clock import lease_clock_s
from agent.process.inheritance import OOM_SCORE
from leasehold_testing.file_link import FileLink
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import InputError
from scheduler.protocol.desired import LEFT_EARLY, LEFT_UNASKED, Desired

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)"
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEP}"
GRANDCHILDREN = """
import os, signal, subprocess, sys, time
deaf = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", deaf])                           # in the group
subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)   # out of it
print("up", flush=True)
"""


def run(main):
    asyncio.run(asyncio.wait_for(main, 50))


def test_a_job_runs_to_its_end_and_is_told_who_it_is(node):
    names = "CUDA_VISIBLE_DEVICES RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT MINE"
    names += " LEASEHOLD_JOB_ID LEASEHOLD_FENCING_TOKEN LEASEHOLD_TOTAL_STEPS LEASEHOLD_PLAN HIDDEN"
    program = f"import os, sys\nfor n in {names.split()}: print(n, os.environ.get(n))"
    program += "\nprint(os.getcwd(), os.getsid(0) == os.getpid(), file=sys.stderr)"

    async def main():
        lease = node.lease(
            7,
            program,
            workers=(1, 3),
            rank=2,
            world_size=4,
            local_ranks=(0, 1),
            master_addr="10.0.0.1",
            master_port=1234,
            env={"MINE": "yes", "RANK": "9"},
            total_steps=5,
            plan="tensor=2",
        )
        node.want(lease)
        async with node.agent():
            report = await node.until(lambda: node.ended(7))
        assert report.reason is EndReason.COMPLETED
        assert (report.exit_code, report.steps_done) == (0, 5)
        for rank, local in ((2, 0), (3, 1)):
            seen = dict(line.split(" ") for line in node.log(7, f"stdout.{rank}").splitlines())
            assert seen == {
                "CUDA_VISIBLE_DEVICES": "1,3",
                "RANK": str(rank),
                "WORLD_SIZE": "4",
                "LOCAL_RANK": str(local),
                "MASTER_ADDR": "10.0.0.1",
                "MASTER_PORT": "1234",
                "MINE": "yes",
                "LEASEHOLD_JOB_ID": "job-7",
                "LEASEHOLD_FENCING_TOKEN": "7",
                "LEASEHOLD_TOTAL_STEPS": "5",
                "LEASEHOLD_PLAN": "tensor=2",
                "HIDDEN": "None",
            }
            assert node.log(7, f"stderr.{rank}") == f"{node.folder} True\n"

    os.environ["HIDDEN"] = "the agent's own"
    try:
        run(main())
    finally:
        del os.environ["HIDDEN"]


@pytest.mark.parametrize(
    ("program", "reason", "code", "words"),
    [
        ("raise SystemExit(3)", EndReason.FAILED, 3, "exit code 3"),
        ("raise SystemExit(75)", EndReason.RELEASED, 75, "although nothing had asked it to"),
        ("raise MemoryError", EndReason.OOM, 1, "out-of-memory"),
        ("import os; os.abort()", EndReason.FAILED, -6, "SIGABRT"),
    ],
)
def test_an_exit_is_classified(node, program, reason, code, words):
    async def main():
        node.want(node.lease(1, program))
        async with node.agent():
            report = await node.until(lambda: node.ended(1))
        assert (report.reason, report.exit_code) == (reason, code)
        assert words in report.message
        assert report.reason_code == (LEFT_UNASKED if code == LEFT_EARLY else "")

    run(main())


STATE = """
import json, os, resource
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "ignored": status["SigIgn"], "blocked": status["SigBlk"], "umask": status["Umask"],
    "score": open("/proc/self/oom_score_adj").read().strip(), "nice": os.nice(0),
    "files": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    **{name: resource.getrlimit(getattr(resource, name)) for name in
       ("RLIMIT_CORE", "RLIMIT_STACK", "RLIMIT_NOFILE", "RLIMIT_DATA")},
}))
"""


def test_a_job_inherits_nothing_of_the_agents_state_that_suits_only_the_agent(node):
    """It does not depend on how the agent was started; the reference lists the values."""
    kept = (
        signal.getsignal(signal.SIGUSR2),
        os.umask(0o077),
        resource.getrlimit(resource.RLIMIT_CORE),
    )
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    resource.setrlimit(resource.RLIMIT_CORE, (4096, kept[2][1]))
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)

    async def main():
        node.want(node.lease(1, STATE))
        async with node.agent():
            await node.until(lambda: node.ended(1))
        told.update(json.loads(node.log(1)))

    told = {}
    try:
        run(main())
    finally:
        signal.signal(signal.SIGUSR2, kept[0])
        os.umask(kept[1])
        resource.setrlimit(resource.RLIMIT_CORE, kept[2])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        os.close(reading)
        os.close(writing)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Python itself ignores SIGPIPE and SIGXFSZ; 32 and 33 are the C library's own.
    assert int(told["ignored"], 16) & ~sum(1 << n - 1 for n in (13, 25, 32, 33)) == 0
    assert int(told["blocked"], 16) == 0
    assert (told["umask"], told["score"], told["nice"]) == ("0022", str(OOM_SCORE), 0)
    assert told["files"] == [0, 1, 2]
    assert told["RLIMIT_CORE"][0] == 0
    assert told["RLIMIT_STACK"][0] == 8 << 20
    assert told["RLIMIT_NOFILE"][0] == min(65_536, 65_536 if most < 0 else most)
    assert told["RLIMIT_DATA"][0] == resource.RLIM_INFINITY


def test_a_program_that_is_not_there_is_a_failure_with_its_name(node):
    async def main():
        node.want(node.lease(1, "", command=("/no/such/program",)))
        async with node.agent():
            report = await node.until(lambda: node.ended(1))
        assert report.reason is EndReason.FAILED
        assert "/no/such/program" in report.message

    run(main())


def test_a_lease_on_a_worker_that_is_not_there_is_lost(node):
    async def main():
        node.want(node.lease(1, SLEEP, workers=(9,)))
        async with node.agent():
            report = await node.until(lambda: node.ended(1))
        assert report.reason is EndReason.LOST
        assert "no worker 9" in report.message

    run(main())


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_a_gang_whose_port_is_in_use_is_lost_and_one_process_does_not_mind(node, host, family):
    async def main():
        with socket.create_server((host, 0), family=family) as taken:
            port = {"master_port": taken.getsockname()[1]}
            node.want(
                node.lease(1, "pass", **port, world_size=2, local_ranks=(0, 1), workers=(0, 1)),
                node.lease(2, "pass", **port, workers=(2,)),
                node.lease(3, "pass", **port, world_size=2, rank=1, workers=(3,)),
            )
            async with node.agent():
                reports = [await node.until(lambda i=i: node.ended(i)) for i in (1, 2, 3)]
        assert [report.reason for report in reports] == [
            EndReason.LOST,
            EndReason.COMPLETED,
            EndReason.COMPLETED,
        ]
        assert f"listens on port {port['master_port']}, MASTER_PORT" in reports[0].message

    run(main())


def test_no_shell_ever_sees_the_command(node):
    async def main():
        command = (sys.executable, "-c", "import sys; print(sys.argv[1])", "$(id); `id` > x")
        node.want(node.lease(1, "", command=command))
        async with node.agent():
            await node.until(lambda: node.ended(1))
        assert node.log(1) == "$(id); `id` > x\n"

    run(main())


def test_a_job_that_ignores_sigterm_is_killed_before_its_deadline(node):
    async def main():
        sent_s = lease_clock_s()
        node.want(node.lease(1, DEAF, remaining_s=3.0))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1))
            report = await node.until(lambda: node.ended(1))
            # A loaded machine may report late; a job that is never killed would sleep for a minute.
            assert lease_clock_s() - sent_s < 20
            await node.until(lambda: not node.processes_of(1))
        assert report.reason is EndReason.RELEASED
        assert report.exit_code == -9
        assert "killed" in report.message

    run(main())


def test_a_lease_that_is_gone_stops_its_job_and_frees_the_worker_for_the_next(node):
    async def main():
        node.want(node.lease(1, DEAF))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1))
            node.want(node.lease(2, f"import time; print(time.time())\n{SLEEP}"))
            report = await node.until(lambda: node.ended(1) or (node.runs(2) and node.of(2)))
            await node.until(lambda: node.runs(2))
            assert report.reason in {EndReason.CANCELLED, None}
            await node.until(lambda: not node.processes_of(1))
            await node.until(lambda: node.of(1) is None)  # delivered, and forgotten
            node.want()
            await node.until(lambda: node.report().leases == ())

    run(main())


def test_a_new_leader_hears_of_an_end_before_the_node_forgets_it(node):
    async def main():
        lease = node.lease(1, "raise SystemExit(4)")
        node.want(lease)
        async with node.agent(report_every_s=60.0):
            await node.until(lambda: node.ended(1))
            link, told = FileLink(folder=node.folder), node.folder / "ended-1.json"
            link.publish(Desired(term=1, revision=0, leases=(lease,)))
            await node.until(lambda: node.report(told).term == 1)
            link.publish(Desired(term=2, revision=0, leases=()))
            await node.until(lambda: node.report().leases == ())
            assert node.report(told).term == 2

    run(main())


def test_grandchildren_end_with_the_job_wherever_they_hide(node):
    async def main():
        node.want(node.lease(1, GRANDCHILDREN))
        async with node.agent():
            report = await node.until(lambda: node.ended(1))
            assert report.reason is EndReason.COMPLETED
            assert node.processes_of(1) in ([], [_supervisor(node, 1)])
        node.want(node.lease(2, GRANDCHILDREN + "time.sleep(60)"))
        async with node.agent():
            await node.until(lambda: "up" in node.log(2))
            await node.until(lambda: len(node.processes_of(2)) == 4)
            node.want()
            await node.until(lambda: not node.processes_of(2))

    run(main())


def _supervisor(node, lease_id):
    import json

    text = (node.state_dir / "leases" / str(lease_id) / "running.json").read_text()
    return json.loads(text)["pid"]


def test_when_one_process_of_the_node_fails_the_others_go_too(node):
    program = f"import os\nif os.environ['RANK'] == '1': raise SystemExit(4)\n{SLEEP}"

    async def main():
        node.want(node.lease(1, program, world_size=2, local_ranks=(0, 1)))
        async with node.agent():
            report = await node.until(lambda: node.ended(1))
        assert (report.reason, report.exit_code) == (EndReason.FAILED, 4)

    run(main())


def test_an_agent_that_was_killed_finds_its_jobs_again(node):
    steps = "import time\nfor i in range(1, 1000): print('step', i, flush=True); time.sleep(0.02)"

    async def main():
        lease = node.lease(1, steps, progress_regex=r"step (?P<steps>\d+)")
        short = node.lease(2, "import time; time.sleep(1); raise SystemExit(3)", workers=(1,))
        node.want(lease, short)
        first = node.start_agent()
        await node.until(lambda: node.runs(1) and node.runs(2))
        pids = node.processes_of(1)
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = node.of(1).steps_live
        ended = node.state_dir / "leases" / "2" / "exit.json"
        await node.until(ended.exists)  # while no agent looks
        (node.folder / "report.json").unlink()
        node.start_agent()
        await node.until(lambda: node.of(1) and node.of(1).steps_live > before)
        assert node.processes_of(1) == pids  # the same ones: nothing was started twice
        report = await node.until(lambda: node.ended(2))
        assert (report.reason, report.exit_code) == (EndReason.FAILED, 3)
        node.want()
        report = await node.until(lambda: node.ended(1) or node.of(1) is None)
        await node.until(lambda: not node.processes_of(1))

    run(main())


def test_without_any_agent_the_deadline_still_holds(node):
    async def main():
        sent_s = lease_clock_s()
        node.want(node.lease(1, DEAF, remaining_s=10.0))  # time to start on a busy machine
        first = node.start_agent()
        await node.until(lambda: "up" in node.log(1))
        first.kill()
        first.wait()
        await node.until(lambda: not node.processes_of(1))
        assert lease_clock_s() - sent_s < 20  # left alone it sleeps for a minute
        node.start_agent()
        report = await node.until(lambda: node.ended(1))
        assert report.reason is EndReason.RELEASED

    run(main())


def test_when_the_supervisor_is_killed_the_job_goes_with_it_and_counts_as_lost(node):
    async def main():
        node.want(node.lease(1, GRANDCHILDREN + "time.sleep(60)"))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1) and node.runs(1))
            os.kill(_supervisor(node, 1), signal.SIGKILL)
            report = await node.until(lambda: node.ended(1))
            assert report.reason is EndReason.LOST
            await node.until(lambda: not node.processes_of(1))

    run(main())


def test_a_supervisor_that_is_stuck_does_not_save_its_job(node):
    async def main():
        node.want(node.lease(1, DEAF, remaining_s=10.0))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1) and node.runs(1))
            supervisor = _supervisor(node, 1)
            for _ in range(3):
                os.kill(supervisor, signal.SIGSTOP)
            node.want()
            await node.until(lambda: not node.processes_of(1), 30)
            assert (await node.until(lambda: node.ended(1) or node.of(1) is None)) is not None

    run(main())


def test_output_is_rotated_and_nothing_of_what_is_kept_is_missing(node, monkeypatch):
    import agent.process.node
    from agent.process.backend import ProcessBackend

    def small(**options):
        return ProcessBackend(**options, log_bytes=10_000, log_backups=2)

    monkeypatch.setattr(agent.process.node, "ProcessBackend", small)

    async def main():
        node.want(node.lease(1, "for i in range(20000): print(f'{i:07d}', flush=i % 100 == 0)"))
        async with node.agent():
            await node.until(lambda: node.ended(1))

    run(main())
    logs = node.state_dir / "logs" / "1"
    files = [logs / f"stdout.0.log{suffix}" for suffix in (".2", ".1", "")]
    assert sorted(logs.glob("stdout*")) == sorted(files)
    lines = "".join(f.read_text() for f in files).splitlines()[1:]  # the first may be cut
    assert lines == [f"{i:07d}" for i in range(20000 - len(lines), 20000)]
    assert all(f.stat().st_size <= 65536 for f in files)


@pytest.mark.parametrize("announced", [True, False])
def test_steps_of_a_plain_program_come_from_its_file_and_survive_a_preemption(node, announced):
    program = """
import pathlib, signal, sys, time
state = pathlib.Path("steps")
done = int(state.read_text()) if state.exists() else 0
def leave(*_):
    state.write_text(str(done)); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
while done < 60:
    time.sleep(0.02); done += 1
state.write_text(str(done))
"""

    async def main():
        plain = {"total_steps": 60, "progress_file": "steps", "job_id": "p"}
        node.want(node.lease(1, program, **plain))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1))
            await asyncio.sleep(0.1)
            if announced:
                node.want(node.lease(1, program, **plain, remaining_s=1.4, notice_in_s=0.0))
            else:
                node.want()
            report = await node.until(lambda: node.ended(1))
            assert report.reason in {EndReason.RELEASED, EndReason.CANCELLED}
            assert 0 < report.steps_done < 60
            node.want(node.lease(2, program, **plain, steps_done=report.steps_done))
            report = await node.until(lambda: node.ended(2))
            assert (report.reason, report.steps_done) == (EndReason.COMPLETED, 60)

    run(main())


def test_two_agents_never_share_a_state_folder(node):
    async def main():
        node.want()
        async with node.agent():
            await node.until(node.report)
            with pytest.raises(InputError, match="another agent"):
                async with node.agent() as second:
                    await second.run()

    run(main())


def test_a_scheduler_that_is_away_stops_nothing_until_the_deadline(node):
    async def main():
        lease = node.lease(1, SLEEP, remaining_s=4.0)
        node.want(lease)
        async with node.agent(retry_least_s=0.05, retry_most_s=0.1):
            await node.until(lambda: node.runs(1))
            (node.folder / "desired.json").unlink()
            end_s = time.monotonic() + 0.5
            while time.monotonic() < end_s:
                assert len(node.processes_of(1)) == 2
                await asyncio.sleep(0.05)
            node.want(replace(lease, remaining_s=30.0))  # back, and renewed
            report_path = node.folder / "report.json"
            report_path.unlink(missing_ok=True)
            await node.until(lambda: node.runs(1))
            assert node.of(1).state is LeasePhase.RUNNING

    run(main())


def test_the_folder_of_a_lease_is_closed_to_others(node):
    async def main():
        node.want(node.lease(1, SLEEP))
        async with node.agent():
            await node.until(lambda: node.runs(1))
            lease = node.state_dir / "leases" / "1"
            assert node.state_dir.stat().st_mode & 0o077 == 0
            assert lease.stat().st_mode & 0o077 == 0
            assert (node.state_dir / "jobs.sock").stat().st_mode & 0o077 == 0

    run(main())


def test_what_a_dying_agent_left_half_written_is_cleared_away(node):
    async def main():
        half = node.state_dir / "leases" / "3"
        half.mkdir(parents=True)
        (half / "lease.json").write_text('{"lease": ')
        node.want()
        async with node.agent():
            await node.until(node.report)
        assert not half.exists()

    run(main())


def test_a_lease_that_arrives_too_late_is_released_without_a_process(node):
    async def main():
        node.want(node.lease(1, SLEEP, remaining_s=0.5))
        async with node.agent():
            report = await node.until(lambda: node.ended(1))
            assert (report.reason, report.started_s) == (EndReason.RELEASED, None)
        async with node.agent():  # and the next agent knows it, too
            (node.folder / "report.json").unlink()
            assert (await node.until(lambda: node.ended(1))).reason is EndReason.RELEASED

    run(main())


def test_an_answer_that_makes_no_sense_stops_nothing(node):
    async def main():
        node.want(node.lease(1, SLEEP))
        async with node.agent(retry_least_s=0.05, retry_most_s=0.1):
            await node.until(lambda: node.runs(1))
            (node.folder / "desired.json").write_text('{"published_s": 0, "desired": {}}')
            await asyncio.sleep(0.3)
            assert len(node.processes_of(1)) == 2
            node.want()
            await node.until(lambda: not node.processes_of(1))

    run(main())


@pytest.mark.parametrize("job_id", ["..", "a/b", "j" * 300])
def test_a_job_that_names_no_folder_has_one_of_its_own_for_all_its_leases(node, job_id):
    program = """
import os, pathlib
count = pathlib.Path("count")
count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))
print(count.read_text(), os.getcwd())
"""

    async def main():
        own = {"working_dir": "", "job_id": job_id}
        async with node.agent():
            for number in (1, 2):
                node.want(node.lease(number, program, **own))
                await node.until(lambda number=number: node.ended(number))
        seen = [node.log(number).split() for number in (1, 2)]
        assert [count for count, _ in seen] == ["1", "2"]
        assert seen[0][1] == seen[1][1]
        assert seen[0][1].startswith(f"{node.state_dir}/work/")

    run(main())


def test_a_folder_outlives_a_lease_whose_job_is_in_it_again(node):
    program = f"""
import os, pathlib, time
if os.environ["LEASEHOLD_LEASE_ID"] == "2":
    while pathlib.Path({str(node.state_dir)!r}, "leases", "1").exists():
        time.sleep(0.01)
    pathlib.Path("state").touch()
"""

    async def main():
        own = {"working_dir": "", "job_id": "j"}
        async with node.agent():
            old, new = (node.lease(number, program, **own) for number in (1, 2))
            node.want(old)
            await node.until(lambda: node.ended(1))
            node.want(old, new)  # the scheduler has granted the next one, and not dropped the first
            await node.until(lambda: node.runs(2))
            node.want(new)
            ended = await node.until(lambda: node.ended(2))
            assert ended.reason is EndReason.COMPLETED, ended.message

    run(main())


def test_the_folder_for_checkpoints_is_made_where_the_one_above_is_there(node):
    program = """
import os
path = os.environ["LEASEHOLD_CHECKPOINT_DIR"]
print(oct(os.stat(path).st_mode & 0o777) if os.path.isdir(path) else "missing", flush=True)
"""

    async def scenario():
        near, far = node.folder / "kept", node.folder / "a" / "b"
        node.want(
            node.lease(1, program, checkpoint_dir=str(near)),
            node.lease(2, program, checkpoint_dir=str(far), workers=(1,)),
        )
        async with node.agent():
            await node.until(lambda: node.ended(1) and node.ended(2))
        assert node.log(1) == "0o700\n"
        assert node.log(2) == "missing\n"  # and the program has run all the same
        told = (node.state_dir / "logs" / "2" / "supervisor.log").read_text()
        assert f"the folder for checkpoints {far} cannot be made" in told

    asyncio.run(scenario())
