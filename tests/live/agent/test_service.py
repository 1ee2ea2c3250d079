"""Whole agents as they are started in service, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import replace
from unittest import mock

import pytest

from agent.link.http_link import LinkSettings
from agent.logs.log_upload import UploadSettings
from agent.process.lease_files import LeaseFolder
from agent.process.node import find_workers
from agent.settings import AgentSettings
from leasehold.config.secret_files import read_secret
from leasehold.daemon import agent as daemon_agent
from leasehold.daemon.agent import (
    HEARTBEAT,
    AgentOptions,
    check_address,
    default_state_dir,
    local_address,
    run_agent,
)
from leasehold.daemon.process import heartbeat
from leasehold_testing.played_agent import ALONE, gap_s, played_agent
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import ClusterError, InputError, NotPermittedError

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)"
QUICK = AgentSettings(
    margin_s=0.2,
    report_every_s=0.5,
    report_least_s=0.01,
    tick_s=0.1,
    retry_least_s=0.05,
    retry_most_s=0.2,
    retry_refused_s=0.2,
    retry_refused_most_s=0.4,
)


def run(main):
    asyncio.run(asyncio.wait_for(main, 50))


def options(node, *schedulers, **more):
    told = {
        "servers": tuple(s.address for s in schedulers),
        "node": "n1",
        "workers": ("v100:2", "p100:2"),
        "state_dir": node.state_dir,
        "token": "lh_good",
        "settings": QUICK,
        "link": LinkSettings(wait_s=0.5, slack_s=0.5, connect_s=1.0, reply_s=1.0),
        "upload": UploadSettings(every_s=0.05, retry_least_s=0.05),
    }
    return AgentOptions(**(told | more))


@contextlib.asynccontextmanager
async def serving(told):
    stop = asyncio.Event()
    task = asyncio.create_task(run_agent(told, stop=stop))
    try:
        yield task
    finally:
        stop.set()
        await task


def test_from_an_enrolment_to_a_job_s_output_and_on_without_the_secret(node, scheduler):
    (node.folder / "secret").write_text("lhe_once\n")
    told = options(node, scheduler, token="", enrolment_file=node.folder / "secret")
    program = "import sys\nprint('to out')\nprint('to err', file=sys.stderr)"

    async def main():
        scheduler.faults = [503]
        scheduler.want(node.lease(1, program))
        async with serving(told):
            report = await node.until(lambda: scheduler.ended(1))
            assert report.reason is EndReason.COMPLETED
            await node.until(lambda: len(scheduler.logs) == 2)
        assert scheduler.logs == {(1, "out"): b"to out\n", (1, "err"): b"to err\n"}
        types = [w.worker_type for w in scheduler.reports[-1].workers]
        assert types == ["v100", "v100", "p100", "p100"]
        token = node.state_dir / "agent.token"
        assert token.read_text() == "lh_n1\n"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert scheduler.headers[-1]["x-leasehold-address"] == local_address("http://127.0.0.1:1")
        seen = len(scheduler.reports)
        async with serving(told):  # the secret is used up
            await node.until(lambda: len(scheduler.reports) > seen)

    run(main())


def test_reports_say_how_often_the_agent_stood_still(node, scheduler):
    async def main():
        stop = asyncio.Event()
        told = options(node, scheduler)
        task = asyncio.create_task(run_agent(told, stop=stop, stalls=lambda: 7))
        await node.until(lambda: scheduler.reports)
        assert scheduler.reports[0].stalls == 7
        stop.set()
        await task

    run(main())


def test_a_refused_enrolment_ends_the_agent_with_the_reason(node, scheduler):
    async def main():
        told = options(node, scheduler, token="", enrolment="lhe_wrong")
        with pytest.raises(NotPermittedError, match="wrong, used or too old"):
            await run_agent(told)

    run(main())


@pytest.mark.parametrize(
    ("token", "words"),
    [("", "asks for a token, and this agent has none"), ("lh_bad", "refuses this")],
)
def test_an_agent_that_was_never_let_in_ends_with_the_reason(node, scheduler, token, words):
    async def main():
        with pytest.raises(ExceptionGroup) as caught:
            await run_agent(options(node, scheduler, token=token))
        # It polls and reports at once, so one of them or both hear of it.
        assert caught.value.subgroup(NotPermittedError).exceptions == caught.value.exceptions
        assert all(words in str(error) for error in caught.value.exceptions)

    run(main())


def test_an_agent_shows_that_it_moves_also_while_it_waits_to_enrol(node, scheduler, monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.05)
    (node.folder / "secret").write_text("lhe_once\n")
    told = options(node, scheduler, token="", enrolment_file=node.folder / "secret")
    beat = told.state_dir / HEARTBEAT

    async def main():
        scheduler.faults = [503] * 1000
        async with serving(told):
            await node.until(beat.exists)
            os.utime(beat, (0.0, 0.0))
            await node.until(lambda: beat.stat().st_mtime > 0.0)

    run(main())


def test_a_refused_agent_that_finds_jobs_goes_on_asking(node, scheduler):
    async def main():
        scheduler.want(node.lease(1, SLEEP))
        async with serving(options(node, scheduler)):
            await node.until(lambda: scheduler.of(1) and scheduler.of(1).state == "running")
        scheduler.tokens, good = {"lh_other"}, scheduler.tokens
        refused = len(scheduler.requests)
        async with serving(options(node, scheduler)):
            await node.until(lambda: len(scheduler.requests) > refused + 3)
            scheduler.tokens = good
            scheduler.want()
            await node.until(lambda: scheduler.ended(1))

    run(main())


def test_a_token_that_is_refused_later_is_told_once_with_what_to_do(node, scheduler, caplog):
    def told():
        return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]

    async def main():
        async with serving(options(node, scheduler)):
            await node.until(lambda: scheduler.reports)
            scheduler.tokens, good = {"lh_other"}, scheduler.tokens
            refused = len(scheduler.requests)
            await node.until(lambda: len(scheduler.requests) > refused + 5)
            (line,) = told()
            assert "refuses this agent's token" in line
            assert "node 'n1' was enrolled again" in line
            assert "remove its agent.token and start it with a new enrolment" in line
            scheduler.tokens = good
            await node.until(lambda: "takes this agent's token again" in caplog.text)
            scheduler.tokens, seen = {"lh_other"}, len(scheduler.requests)
            await node.until(lambda: len(scheduler.requests) > seen + 5)
            assert len(told()) == 2  # once more, since it was accepted between

    caplog.set_level(logging.INFO, "leasehold.agent")
    run(main())


def test_an_agent_whose_first_report_was_taken_goes_on_though_its_next_requests_are_refused(
    node, scheduler
):
    async def main():
        scheduler.faults = [None, 401, 401]
        async with serving(options(node, scheduler)):
            await node.until(lambda: len(scheduler.requests) > 5)

    run(main())


@pytest.mark.parametrize("name", ["n 5", "-n", "n\u00fc", "n" * 129, "a/b"])
def test_a_node_s_name_that_no_scheduler_takes_is_refused_at_once(name):
    with pytest.raises(InputError, match="--node is"):
        asyncio.run(run_agent(AgentOptions(node=name)))


def test_an_agent_that_cannot_enrol_yet_can_be_stopped(node, scheduler):
    async def main():
        scheduler.faults = [503] * 100
        async with serving(options(node, scheduler, token="", enrolment="lhe_once")):
            await node.until(lambda: len(scheduler.requests) > 1)

    run(main())


def test_a_job_outlives_a_leader_change_a_refused_token_and_cut_answers(
    node, scheduler, start_scheduler
):
    second = start_scheduler()
    lease = node.lease(1, SLEEP)

    async def main():
        scheduler.want(lease)
        second.faults = [503] * 10_000  # a standby
        async with serving(options(node, scheduler, second)):
            await node.until(lambda: scheduler.of(1) and scheduler.of(1).state == "running")
            pids = node.processes_of(1)
            scheduler.tokens, good = {"lh_other"}, scheduler.tokens
            refused = len(scheduler.requests)
            await node.until(lambda: len(scheduler.requests) > refused + 3)
            scheduler.tokens, seen = good, len(scheduler.reports)
            await node.until(lambda: len(scheduler.reports) > seen)
            scheduler.faults = ["cut", b"{}", 500, "cut", "cut", 2.0]
            await node.until(lambda: not scheduler.faults)
            second.term = 2  # the new leader
            second.want(replace(lease, remaining_s=25.0))
            scheduler.faults, second.faults = [503] * 10_000, []
            await node.until(lambda: second.of(1) and second.of(1).state == "running")
            assert node.processes_of(1) == pids
            await node.until(lambda: second.reports[-1].term == 2)
            second.want()
            report = await node.until(lambda: second.ended(1))
            assert report.reason is EndReason.CANCELLED

    run(main())


def test_answers_that_are_repeated_or_late_change_nothing(node, scheduler):
    lease = node.lease(1, SLEEP)

    async def main():
        scheduler.want(lease)
        async with serving(options(node, scheduler)):
            await node.until(lambda: scheduler.of(1) and scheduler.of(1).state == "running")
            pids = node.processes_of(1)
            scheduler.revision -= 1  # as if an older answer had been under way for long
            scheduler.leases = ()
            asked = len(scheduler.requests)
            await node.until(lambda: len(scheduler.requests) > asked + 4)
            assert node.processes_of(1) == pids
            scheduler.leases = (lease,)

    run(main())


def test_ends_are_reported_at_once_and_progress_only_now_and_then(node, scheduler):
    steps = "import time\nfor i in range(1, 200): print('step', i, flush=True); time.sleep(0.01)"
    rare = replace(QUICK, report_every_s=30.0, progress_every_s=1.0)

    async def main():
        scheduler.want(node.lease(1, steps, progress_regex=r"step (\d+)", total_steps=199))
        async with serving(options(node, scheduler, settings=rare)):
            await node.until(lambda: scheduler.ended(1))
        live = [r.leases[0].steps_live for r in scheduler.reports if r.leases]
        assert 3 <= len(live) <= 8  # two states, an end or two, and one a second
        assert scheduler.ended(1).steps_done == 199

    run(main())


def test_reports_without_news_come_at_any_interval_that_is_set():
    async def story(stage):
        await stage.until(lambda: len(stage.scheduler.reports) > 4)
        return gap_s([at_s for at_s, _ in stage.scheduler.reports[1:]])

    times = {"times.report_every_s": 7.0, "times.progress_every_s": 5.0}
    assert played_agent(story, ALONE | times) == 7


def test_with_stop_jobs_they_leave_with_the_agent_and_it_is_no_failure(node, scheduler):
    async def main():
        scheduler.want(node.lease(1, SLEEP))
        async with serving(options(node, scheduler, stop_jobs=True)):
            await node.until(lambda: scheduler.of(1) and scheduler.of(1).state == "running")
        assert scheduler.ended(1).reason is EndReason.RELEASED
        assert node.processes_of(1) == []
        assert all("being stopped" in w.problem for w in scheduler.reports[-1].workers)

    run(main())


def test_a_lease_that_comes_while_the_agent_stops_is_handed_back(node, scheduler):
    deaf = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEP}"

    async def main():
        first = node.lease(1, deaf)
        scheduler.want(first)
        async with serving(options(node, scheduler, stop_jobs=True)):
            await node.until(lambda: (1, "out") in scheduler.logs)
            told = len(scheduler.reports)

            async def offer():
                await node.until(
                    lambda: len(scheduler.reports) > told and scheduler.of(1).state == "stopping"
                )
                scheduler.want(first, node.lease(2, SLEEP, workers=(1,)))

            offering = asyncio.create_task(offer())
        await offering
        report = scheduler.ended(2)
        assert (report.reason, report.started_s) == (EndReason.RELEASED, None)
        assert scheduler.ended(1).exit_code == -9

    run(main())


def test_the_command_stops_on_sigterm_while_its_jobs_go_on(node, scheduler):
    command = [sys.executable, "-m", "leasehold", "agent", "--node", "n1", "--worker", "v100:2"]
    command += ["--server", scheduler.address, "--state-dir", str(node.state_dir)]
    command += ["--poll-wait", "0.5", "--report-every", "0.5"]
    environment = os.environ | {"LEASEHOLD_AGENT_TOKEN": "lh_good"}

    def start():
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        node.processes.append(process)
        return process

    async def main():
        scheduler.want(node.lease(1, SLEEP))
        agent = start()
        await node.until(lambda: scheduler.of(1) and scheduler.of(1).state == "running")
        pids = node.processes_of(1)
        agent.send_signal(signal.SIGTERM)
        _, said = await asyncio.to_thread(agent.communicate, timeout=10)
        assert agent.returncode == 0
        assert "node n1 serves" in said
        assert "lh_good" not in said
        assert node.processes_of(1) == pids
        agent = start()
        seen = len(scheduler.reports)
        await node.until(lambda: len(scheduler.reports) > seen)
        assert scheduler.of(1).state is LeasePhase.RUNNING
        scheduler.want()
        await node.until(lambda: not node.processes_of(1))
        agent.terminate()
        await asyncio.to_thread(agent.communicate, timeout=10)

    run(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--log-level", "loud"], "loud"),
        (["--worker-name", "A100"], "PRODUCT=TYPE"),
        (["--worker", "v100:x"], "v100:x"),
        (["--worker", "v100:1", "--server", "nowhere"], "nowhere"),
        (["--worker", "v100:1", "--token-file", "/no/such/file"], "/no/such/file"),
        (["--worker", "v100:1", "--address", "x y"], "--address is 'x y'"),
        (["--worker", "v100:1", "--address", "host:80"], "without a port"),
        (["--worker", "v100:1", "--address", "-x"], "--address is '-x'"),
    ],
)
def test_the_command_says_what_is_wrong_with_an_option(node, arguments, words):
    command = [sys.executable, "-m", "leasehold", "agent", "--state-dir", str(node.state_dir)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert words in done.stderr
    lines = [line for line in done.stderr.splitlines() if "trust one another" not in line]
    assert len(lines) == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_an_agent_logs_as_the_scheduler_does(node, as_json):
    command = [sys.executable, "-m", "leasehold", "agent", "--state-dir", str(node.state_dir)]
    options = ["--worker", "v100:1", "--server", "http://127.0.0.1:9", "--node", "n0"]
    agent = subprocess.Popen(
        [*command, *options, *(["--log-json"] if as_json else [])],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        first, line = agent.stderr.readline(), agent.stderr.readline()
    finally:
        agent.kill()
        agent.communicate()
    assert "jobs on this node trust one another, and the agent them: isolation is off" in first
    if as_json:
        said = json.loads(line)
        assert (said["level"], said["logger"]) == ("info", "leasehold.agent")
        assert said["message"].startswith("node n0 serves")
    else:
        assert re.match(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info leasehold\.agent: node n0", line
        )


def test_the_options_of_the_command_reach_the_agent(monkeypatch, tmp_path):
    import leasehold.cli.local.agent as command

    seen = []

    async def keep(told, *, stop, stalls):
        seen.append(told)
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    monkeypatch.setattr(command, "run_agent", keep)
    monkeypatch.setenv("LEASEHOLD_ENROLMENT", "lhe_x\n")
    command.agent(
        server=["http://a:1", "http://b:1"],
        worker=["v100:1", "k80:2"],
        worker_name=["NVIDIA A=B=a100"],
        state_dir=str(tmp_path),
        stop_jobs=True,
        report_every=3.0,
        log_level="error",
    )
    (told,) = seen
    assert told.servers == ("http://a:1", "http://b:1")
    assert told.workers == ("v100:1", "k80:2")
    assert dict(told.worker_names) == {"NVIDIA A=B": "a100"}
    assert (told.enrolment, told.token, told.stop_jobs) == ("lhe_x", "", True)
    assert told.settings.report_every_s == 3.0


def test_of_several_errors_a_person_sees_one(monkeypatch, tmp_path):
    import leasehold.cli.local.agent as command

    async def fail(told, *, stop, stalls):
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [InputError("the reason")])])

    monkeypatch.setattr(command, "run_agent", fail)
    with pytest.raises(InputError, match="the reason"):
        command.agent(state_dir=str(tmp_path))


def test_an_agent_whose_loop_stands_still_logs_where(monkeypatch, tmp_path, caplog):
    import leasehold.cli.local.agent as command

    counted = []

    async def stand_still(_told, *, stop, stalls):
        time.sleep(1.0)  # noqa: ASYNC251 - that is the point
        async with asyncio.timeout(30.0):
            while not stalls():  # noqa: ASYNC110 - a thread counts them
                await asyncio.sleep(0.01)
        counted.append(stalls())

    # Its handler would outlive this test, and write to a file that is closed then.
    monkeypatch.setattr(command, "set_up_logging", lambda **_: None)
    monkeypatch.setattr(command, "STALL_S", 0.1)
    monkeypatch.setattr(command, "run_agent", stand_still)
    command.agent(state_dir=str(tmp_path))
    assert "the event loop has stood still for 0." in caplog.text
    assert "stand_still (test_service.py:" in caplog.text
    assert counted == [1]


def test_workers_are_declared_or_asked_of_nvml():
    two = find_workers(("v100:1", "k80:1"), {})
    assert [w.worker_type for w in two.workers] == ["v100", "k80"]
    with pytest.raises(ClusterError, match="v100"):
        find_workers(("v100",), {})


def test_the_address_is_that_of_the_way_to_the_scheduler(monkeypatch):
    routes = {"127.0.0.1": "127.0.0.1", "::1": "::1", "10.1.0.1": "10.1.0.7"}
    monkeypatch.setattr(daemon_agent, "_address_towards", lambda host, _: routes.get(host, ""))
    assert local_address("http://10.1.0.1:1") == "10.1.0.7"
    for here in ("http://127.0.0.1:1", "http://[::1]:1", "http://no-such-host.invalid"):
        assert local_address(here) == "127.0.0.1", "there is no other network"
        with mock.patch.dict(routes, {"2001:db8::1": "2001:db8:7::7"}):
            assert local_address(here) == "2001:db8:7::7"
            with mock.patch.dict(routes, {"192.0.2.1": "10.0.0.7"}):
                assert local_address(here) == "10.0.0.7"


def test_the_kernel_is_asked_for_the_way(monkeypatch):
    assert daemon_agent._address_towards("127.0.0.1", 1) == "127.0.0.1"
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", mock.Mock(side_effect=unknown))
    assert daemon_agent._address_towards("no-such-host.invalid", 1) == ""


def test_the_state_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_dir() == tmp_path / "leasehold" / "agent"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_state_dir() == tmp_path / ".local" / "state" / "leasehold" / "agent"


@pytest.mark.parametrize("text", ["", "two words", "kö"])
def test_a_token_file_holds_one_word(tmp_path, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(InputError, match="one token"):
        read_secret(tmp_path / "token", "token")


@pytest.mark.parametrize("address", ["gpu-7", "gpu_7.rack1.example", "10.0.0.7", "::1", "fe80::1"])
def test_host_names_and_addresses_are_taken(address):
    check_address(address)


def test_a_second_agent_on_a_folder_never_says_that_it_serves(node, scheduler):
    """It says so when jobs can reach it, not before it has its lock."""
    command = [sys.executable, "-m", "leasehold", "agent", "--node", "n1", "--worker", "v100:1"]
    command += ["--server", scheduler.address, "--state-dir", str(node.state_dir)]
    environment = os.environ | {"LEASEHOLD_AGENT_TOKEN": "lh_good"}

    async def main():
        node.state_dir.mkdir(parents=True, exist_ok=True)
        lock = LeaseFolder(node.state_dir).open_lock()
        done = await asyncio.to_thread(
            subprocess.run, command, env=environment, capture_output=True, text=True, timeout=30
        )
        os.close(lock)
        assert done.returncode != 0
        assert "another agent is using" in done.stderr
        assert "serves" not in done.stderr

    run(main())
