"""The parts of the supervisor that need no processes."""

from __future__ import annotations

import errno
import os

import pytest

import leasehold
from agent.logs.job_output import RotatedLog
from agent.process import supervisor
from agent.process.supervisor import Supervisor, SupervisorOrders, start_ticks
from leasehold import bounds as job_bounds
from scheduler.protocol import bounds, desired


def test_a_full_log_moves_aside_and_the_oldest_goes(tmp_path):
    log = RotatedLog(path=tmp_path / "log", max_bytes=10, backups=2)
    for number in range(5):
        log.write(b"%d" % number * 8)
    log.close()
    names = {p.name: p.read_text()[0] for p in tmp_path.glob("log*")}
    assert names == {"log": "4", "log.1": "3", "log.2": "2"}


def test_without_backups_a_full_log_begins_anew(tmp_path):
    log = RotatedLog(path=tmp_path / "log", max_bytes=10, backups=0)
    log.write(b"a" * 8)
    log.write(b"b" * 8)
    log.close()
    assert (tmp_path / "log").read_text() == "b" * 8
    assert len(list(tmp_path.glob("log*"))) == 1


def test_a_log_that_cannot_be_written_is_dropped(tmp_path):
    RotatedLog(path=tmp_path / "no" / "log", max_bytes=10, backups=1).write(b"lost")


def test_the_code_of_several_processes_is_that_of_the_first_failure(tmp_path):
    control = SupervisorOrders(path=tmp_path)
    boss = Supervisor(folder=tmp_path, launch={}, control=control)
    boss.codes = {1: 0, 2: 0}
    assert boss.exit_code() == 0
    boss.codes = {1: 0, 2: 75}
    assert boss.exit_code() == 75
    boss.first_failure = -9
    assert boss.exit_code() == -9


@pytest.mark.parametrize(
    ("program", "folder", "said"),
    [
        ("true", "none", "working_dir TMP/none is not there; name a folder of the node (-C)"),
        ("true", "file", "working_dir TMP/file cannot be used: Not a directory"),
        ("./none", "", "cannot start './none': No such file or directory"),
        ("TMP/file", "", "cannot start 'TMP/file': Permission denied"),
        ("none-such", "", "cannot start 'none-such': No such file or directory"),
        ("a\0b", "", "cannot start 'a\\x00b': embedded null byte"),
    ],
)
def test_what_keeps_a_process_from_starting_is_named(tmp_path, program, folder, said):
    (tmp_path / "file").touch()
    launch = {
        "command": [program.replace("TMP", str(tmp_path))],
        "cwd": f"{tmp_path}/{folder}".rstrip("/"),
        "processes": [{"env": {}}],
    }
    boss = Supervisor(folder=tmp_path, launch=launch, control=SupervisorOrders(path=tmp_path))
    assert boss.start() == said.replace("TMP", str(tmp_path))


def test_times_are_counted_back_from_the_deadline(tmp_path):
    control = SupervisorOrders(path=tmp_path / "c")
    order = {"deadline_s": 100.0, "grace_s": 3.0, "margin_s": 1.0}
    supervisor.write_json(control.path, order | {"terminate": False, "kill": False})
    control.read()
    boss = Supervisor(folder=tmp_path, launch={}, control=control)
    assert (boss._term_at(), boss._kill_at()) == (96.0, 99.0)
    boss.terminated_s = 10.0
    assert boss._kill_at() == 13.0
    boss.terminated_s = 98.0
    assert boss._kill_at() == 99.0


def test_a_process_is_told_from_a_later_one_by_its_start():
    assert start_ticks(os.getpid()) > start_ticks(1)
    with pytest.raises(OSError, match="No such"):
        start_ticks(2**22 + 1)


def test_the_count_of_memory_kills_is_a_number_or_unseen():
    kills = supervisor.oom_kills()
    assert kills is None or kills >= 0


def test_the_exit_code_of_a_job_that_left_early_is_one_number_everywhere():
    assert supervisor.LEFT_EARLY == desired.LEFT_EARLY == leasehold.LEFT_EARLY


def test_what_jobs_may_tell_is_bounded_alike_in_the_client_package_and_the_protocol():
    told = {name: value for name, value in vars(job_bounds).items() if name.isupper()}
    assert told
    assert told == {name: getattr(bounds, name) for name in told}


def test_a_closed_folder_of_path_is_not_taken_for_the_program():
    error = PermissionError(errno.EACCES, "Permission denied", "pyton")
    said = supervisor._why_not_started("pyton", "/work", error)
    assert said.startswith("cannot start 'pyton': no folder of PATH that the job may read has")
