"""Jobs under users of their own: what works as before, and what keeps them apart.

Attacks with a real scheduler are in tests/redteam.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agent.process.acting import Reach, acting_as
from agent.process.cells import confinement
from agent.process.cells.confinement import find_confinement
from agent.process.control_groups import find_groups
from agent.process.lease_files import LeaseFolder
from leasehold_testing import ON_PATH
from scheduler.domain.lease_life import EndReason
from scheduler.errors import InputError

#: Of this process alone: tests run side by side.
ANN = 1_900_000_000 + 2 * os.getpid()
BOB = ANN + 1
#: One that jobs can reach; that of the tests may lie in root's home.
PYTHON = "/usr/bin/python3"
SLEEP = "echo up; exec sleep 60"

missing = "" if os.geteuid() == 0 else "keeping jobs apart needs root"
missing = missing or ("" if shutil.which("bwrap") else "bubblewrap is not installed")
confined = pytest.mark.skipif(bool(missing), reason=missing)
with_python = pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"there is no {PYTHON}")

AGENT_PROGRAM = """
import asyncio, sys
from pathlib import Path
from agent.settings import AgentSettings
from agent.process.cells.confinement import find_confinement
from agent.process.control_groups import find_groups
from leasehold_testing.file_link import FileLink
from leasehold_testing.local_agent import local_agent
settings = AgentSettings(margin_s=0.2, report_every_s=0.2, report_least_s=0.01, tick_s=0.1)
folder = Path(sys.argv[1])
async def main():
    confinement = find_confinement("required", folder / "state")
    agent = local_agent(node="n1", link=FileLink(folder=folder), workers="v100:4",
                  state_dir=folder / "state", settings=settings, confinement=confinement)
    await agent.run()
asyncio.run(main())
"""


@pytest.fixture
def node(plain_node, new_node):
    class Apart(plain_node):
        """A node with jobs kept apart; its folder is not in /tmp, which jobs do not see."""

        def __init__(self, folder):
            super().__init__(folder)
            folder.chmod(0o755)
            self.state_dir.mkdir(mode=0o700)
            self.shared = folder / "shared"
            self.shared.mkdir()
            self.shared.chmod(0o1777)

        def script(self, lease_id, text, **more):
            """A lease that runs a shell script."""
            known = {"command": ("/bin/sh", "-c", text), "working_dir": str(self.shared)}
            known |= {"uid": ANN, "owner": "ann", "project": "p"}
            return self.lease(lease_id, "", **(known | more))

        def program(self, lease_id, text, **more):
            return self.script(lease_id, "", **({"command": (PYTHON, "-c", text)} | more))

        def here(self, mode="required", **more):
            return self.agent(confinement=find_confinement(mode, self.state_dir, **more))

        def start_confining_agent(self):
            process = subprocess.Popen(
                [sys.executable, "-c", ON_PATH + AGENT_PROGRAM, str(self.folder)]
            )
            self.processes.append(process)
            return process

    return new_node(Apart, Path(tempfile.mkdtemp(prefix="lh-", dir="/srv")))


def run(main):
    asyncio.run(asyncio.wait_for(main, 100))


# -- as before -------------------------------------------------------------------------------------


@confined
@with_python
def test_a_job_is_its_owners_user_and_sees_itself_alone(node):
    text = """
import os, pwd
print(os.getresuid() == (os.getuid(),) * 3, os.getuid(), os.getresgid(), os.getgroups())
print(os.getsid(0) == os.getpid(), os.getcwd(), os.environ["HOME"], pwd.getpwuid(os.getuid())[0])
print(sum(name.isdecimal() for name in os.listdir("/proc")))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print([status[name].strip() for name in ("CapPrm", "CapEff", "CapAmb", "NoNewPrivs")])
print(os.listdir("/tmp"), os.listdir("/var/tmp"), os.listdir("/dev/shm"))
open("/tmp/mine", "w"), open("/var/tmp/mine", "w"), open("/dev/shm/mine", "w")
raise SystemExit(3)
"""

    async def main():
        node.want(node.program(1, text))
        async with node.here():
            report = await node.until(lambda: node.ended(1))
        assert (report.reason, report.exit_code) == (EndReason.FAILED, 3)
        nothing = "0" * 16
        assert node.log(1).splitlines() == [
            f"True {ANN} ({ANN}, {ANN}, {ANN}) []",
            f"True {node.shared} /tmp leasehold-{ANN}",
            "3",  # the first process, its child, and itself
            str([nothing, nothing, nothing, "1"]),
            "[] [] []",
        ]
        assert node.log(1, "stderr.0") == ""

    run(main())


@confined
@with_python
def test_steps_count_however_a_job_tells_them(node):
    by_socket = """
import json, os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["LEASEHOLD_ENDPOINT"])
told = {"secret": os.environ["LEASEHOLD_SECRET"], "steps_done": 3, "steps_live": 4}
s.sendall(json.dumps(told).encode() + b"\\n")
assert json.loads(s.recv(999)) == {"notice": False}
"""
    by_file = 'echo \'{"steps_done": 5, "steps_live": 5}\' > "$LEASEHOLD_PROGRESS_FILE"; exit 75'
    named = "echo 7 > steps; exit 75"
    in_tmp = "echo 8 > /tmp/steps; exit 75"

    async def main():
        node.want(
            node.program(1, by_socket),
            node.script(2, by_file, workers=(1,)),
            node.script(3, named, workers=(2,), working_dir="", progress_file="steps"),
            node.script(4, in_tmp, workers=(3,), progress_file="/tmp/steps"),
            node.script(5, "echo step 9; exit 75", workers=(0, 1), progress_regex=r"step (\d+)"),
        )
        async with node.here():
            steps = {}
            for lease_id in range(1, 6):
                report = await node.until(lambda i=lease_id: node.ended(i))
                steps[lease_id] = report.steps_done
        assert steps == {1: 3, 2: 5, 3: 7, 4: 8, 5: 9}

    run(main())


@confined
def test_a_gang_on_one_node_shares_its_namespaces_and_no_other_lease_does(node):
    mine = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("pid", "mnt", "ipc")]
    spaces = "for n in pid mnt ipc; do readlink /proc/self/ns/$n; done"
    # All run at once, since the kernel reuses the numbers of namespaces that have ended.
    wait = "until [ -e {0} ]; do sleep 0.01; done"
    meet = (
        f"{spaces}; touch gang; {wait.format('other')}; "
        "echo $RANK > /tmp/$RANK; echo $RANK > /dev/shm/$RANK; "
        'for d in /tmp /dev/shm; do until [ "$(ls $d)" = "0\n1" ]; do sleep 0.01; done; done'
    )

    async def main():
        gang = {"world_size": 2, "local_ranks": (0, 1), "workers": (0, 1)}
        node.want(
            node.script(1, meet, **gang),
            node.script(
                2,
                f"{spaces}; touch other; {wait.format('gang')}; sleep 1; ls /tmp /dev/shm",
                workers=(2,),
            ),
        )
        async with node.here():
            report = await node.until(lambda: node.ended(1))
            assert report.reason is EndReason.COMPLETED, report
            assert (await node.until(lambda: node.ended(2))).reason is EndReason.COMPLETED
        first, second = (node.log(1, f"stdout.{rank}").splitlines() for rank in (0, 1))
        *other, shm, _, tmp = node.log(2).splitlines()
        assert (first, shm, tmp) == (second, "/dev/shm:", "/tmp:")
        assert len({*first, *other, *mine}) == 9

    run(main())


@confined
def test_the_notice_and_the_signal_reach_a_job(node):
    text = (
        "trap 'echo told; exit 0' TERM; echo up; "
        'while ! [ -e "$LEASEHOLD_NOTICE_FILE" ]; do sleep 0.02; done; '
        'cat "$LEASEHOLD_NOTICE_FILE"; echo; '
        "while :; do sleep 0.02; done"
    )

    async def main():
        node.want(node.script(1, text, remaining_s=3.0))
        async with node.here():
            report = await node.until(lambda: node.ended(1))
        assert report.reason is EndReason.RELEASED
        lines = node.log(1).splitlines()
        assert (lines[0], lines[1][:13], lines[-1]) == ("up", '{"leave_by_s"', "told")

    run(main())


@confined
@with_python
def test_the_next_agent_goes_on_with_a_job_and_the_job_with_it(node):
    text = """
import json, os, socket, time
told = {"secret": os.environ["LEASEHOLD_SECRET"], "steps_done": 1}
while True:
    try:
        s = socket.socket(socket.AF_UNIX)
        s.connect(os.environ["LEASEHOLD_ENDPOINT"])
        while True:
            s.sendall(json.dumps(told).encode() + b"\\n")
            assert s.recv(999)
            told["steps_done"] += 1
            time.sleep(0.02)
    except (OSError, AssertionError):
        time.sleep(0.02)
"""

    async def main():
        node.want(node.program(1, text, remaining_s=60.0))
        first = node.start_confining_agent()
        await node.until(lambda: node.runs(1) and node.of(1).steps_done > 3)
        first.send_signal(signal.SIGKILL)
        first.wait()
        told = node.of(1).steps_done
        node.start_confining_agent()
        await node.until(lambda: node.of(1).steps_done > told + 3)
        assert node.of(1).state == "running"
        node.want()
        assert (await node.until(lambda: node.ended(1))).reason is EndReason.CANCELLED
        assert node.processes_of(1) == []

    run(main())


@confined
@pytest.mark.parametrize("killed", ["nobody", "the supervisor", "the first process"])
def test_nothing_outlives_a_lease(node, killed):
    """The process left behind has left its session, cleared its environment and ignores signals."""
    left = "trap '' TERM HUP INT; sleep 61"
    text = f'setsid env -i /bin/sh -c "{left}" & sleep 0.3; {SLEEP}'

    async def main():
        node.want(node.script(1, text))
        async with node.here():
            await node.until(lambda: "up" in node.log(1))
            sleeping = await node.until(lambda: pids_of(ANN))
            assert len(sleeping) >= 3
            if killed == "the supervisor":
                supervisor = await node.until(lambda: supervisor_of(node, 1))
                os.kill(supervisor, signal.SIGKILL)
            elif killed == "the first process":
                os.kill(first_of(sleeping[0]), signal.SIGKILL)
            else:
                node.want()
            report = await node.until(lambda: node.ended(1))
            assert pids_of(ANN) == []
            reasons = {"nobody": "cancelled", "the supervisor": "lost"}
            assert report.reason == reasons.get(killed, "failed")

    run(main())


def pids_of(uid):
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and entry.stat().st_uid == uid:
                found.append(int(entry.name))
    return sorted(found)


def supervisor_of(node, lease_id):
    folder = LeaseFolder(node.state_dir / "leases" / str(lease_id))
    return (folder.read("running.json") or {}).get("pid")


def first_of(pid):
    """Return the first process of the namespace that a process is in."""
    space = Path(f"/proc/{pid}/ns/pid").readlink()
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):
            status = (entry / "status").read_text()
            inner = next(line for line in status.splitlines() if line.startswith("NSpid"))
            if (entry / "ns/pid").readlink() == space and inner.split()[-1] == "1":
                return int(entry.name)
    raise AssertionError("there is none")


@confined
@with_python
def test_limits_hold_for_all_that_is_in_a_lease(node):
    groups = find_groups(node.folder)
    if groups.problem:
        pytest.skip(groups.problem)
    hungry = "hoard = []\nwhile True: hoard.append(bytearray(b'x') * 2**20)"

    async def main():
        node.want(
            node.program(1, hungry, memory_bytes=64 * 2**20),
            node.program(2, "print('small')", memory_bytes=256 * 2**20, cpus=1.0, workers=(1,)),
        )
        confinement = find_confinement("required", node.state_dir)
        async with node.agent(groups=groups, confinement=confinement):
            for lease_id, reason in ((1, EndReason.OOM), (2, EndReason.COMPLETED)):
                report = await node.until(lambda i=lease_id: node.ended(i), 60)
                assert report.reason is reason, report
        for root in set(groups.roots.values()):
            assert not list(root.glob(f"{groups.prefix}*"))

    run(main())


@confined
def test_what_a_job_leaves_in_its_folders_goes_with_the_lease(node):
    async def main():
        node.want(node.script(1, "mkdir -p /tmp/a/b; echo x > /tmp/a/b/c; chmod 0 /tmp/a"))
        async with node.here():
            await node.until(lambda: node.ended(1))
            node.want()
            await node.until(lambda: not list((node.state_dir / "leases").iterdir()))
            await node.until(lambda: not list((node.state_dir / "rubbish").iterdir()))

    run(main())


@confined
def test_folders_in_folders_without_end_keep_nothing_from_being_deleted(node):
    nest = "cd /tmp; for n in $(seq 1500); do mkdir d && cd d || exit 1; done"

    async def main():
        node.want(node.script(1, nest))
        async with node.here():
            report = await node.until(lambda: node.ended(1), 60)
            assert report.reason is EndReason.COMPLETED, report
            (node.state_dir / "rubbish" / "older").mkdir(parents=True)
            node.want()
            await node.until(lambda: not list((node.state_dir / "rubbish").iterdir()))

    run(main())


# -- folders of other users
# -------------------------------------------------------------------------


@confined
def test_a_checkpoint_folder_is_made_by_its_owner_and_serves_the_next_attempt(node):
    folder = node.shared / "checkpoints"

    async def main():
        known = {"checkpoint_dir": str(folder)}
        node.want(node.script(1, 'echo 5 > "$LEASEHOLD_CHECKPOINT_DIR/at"; exit 75', **known))
        async with node.here():
            assert (await node.until(lambda: node.ended(1))).reason is EndReason.RELEASED
            status = folder.stat()
            assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (ANN, ANN, 0o700)
            node.want(node.script(2, f"cat {folder}/at", **known))
            assert (await node.until(lambda: node.ended(2))).reason is EndReason.COMPLETED
            assert node.log(2) == "5\n"
            node.want(node.script(3, "exit 0", **known, uid=BOB, owner="bob"))
            report = await node.until(lambda: node.ended(3))
            assert report.reason is EndReason.FAILED
            assert f"checkpoint_dir {folder}, which belongs to uid {ANN}," in report.message

    run(main())


@confined
@pytest.mark.parametrize("whole", [True, False])
def test_a_folder_of_the_release_before_is_refused_until_it_is_given_to_the_owner(node, whole):
    folder = node.shared / "checkpoints"
    (folder / "step-1").mkdir(parents=True, mode=0o700)
    if not whole:  # the folder was given away, its content was not
        os.chown(folder, ANN, ANN)
    else:
        folder.chmod(0o700)
    given = f"chown -R {ANN}:{ANN} {folder}"

    async def main():
        known = {"checkpoint_dir": str(folder), "command": ("/bin/ls", str(folder))}
        node.want(node.script(1, "", **known))
        async with node.here():
            report = await node.until(lambda: node.ended(1))
            assert (report.reason, node.log(1)) == (EndReason.FAILED, "")
            assert f"checkpoint_dir {folder}" in report.message
            assert f"`{given}` gives it to them" in report.message
            assert f"uid {ANN}, as which jobs of 'ann' in project 'p' run" in report.message
            subprocess.run(given.split(), check=True)  # noqa: ASYNC221 - it takes no time
            node.want(node.script(2, "", **known))
            assert (await node.until(lambda: node.ended(2))).reason is EndReason.COMPLETED
            assert node.log(2) == "step-1\n"

    run(main())


@confined
def test_folders_that_cannot_be_used_are_named(node):
    closed = node.folder / "closed"
    closed.mkdir(mode=0o700)
    absent = node.shared / "absent"
    stories = {
        1: ({"working_dir": str(closed)}, f"working_dir {closed}, which belongs to uid 0,"),
        2: ({"working_dir": str(absent)}, f"working_dir {absent} is not there"),
        3: ({"checkpoint_dir": str(closed / "c")}, f"checkpoint_dir {closed}/c cannot be made by"),
        4: ({"checkpoint_dir": "/tmp/x/../c"}, "checkpoint_dir /tmp/c lies in /tmp, and each"),
        5: ({"working_dir": str(node.state_dir)}, "lies in the agent's own folder"),
        6: ({"checkpoint_dir": f"{closed}/x`id`"}, f"`chown {ANN}:{ANN} '{closed}/x`id`'`"),
    }

    async def main():
        async with node.here():
            for lease_id, (known, words) in stories.items():
                node.want(node.script(lease_id, "echo ran", **known))
                report = await node.until(lambda i=lease_id: node.ended(i))
                assert report.reason is EndReason.FAILED, report
                assert words in report.message
                assert node.log(lease_id) == ""
        assert not (closed / "c").exists()

    run(main())


@confined
def test_what_a_job_links_to_is_read_with_its_rights(node):
    secret = node.state_dir / "agent.token"
    secret.write_text("4711")
    secret.chmod(0o600)
    link = f"ln -s {secret} steps; echo '{{\"steps_done\": 12}}' > /tmp/t; sleep 1; exit 75"

    async def main():
        node.want(
            node.script(1, link, working_dir="", progress_file="steps"),
            node.script(2, "sleep 1; exit 75", workers=(1,), progress_file=str(secret)),
            node.script(
                3, f'ln -s {secret} "$LEASEHOLD_PROGRESS_FILE"; sleep 1; exit 75', workers=(2,)
            ),
        )
        async with node.here():
            for lease_id in (1, 2, 3):
                report = await node.until(lambda i=lease_id: node.ended(i))
                assert (report.reason, report.steps_done) == (EndReason.RELEASED, 0)
            assert "Permission denied" in node.of(2).progress_problem

    run(main())


@confined
def test_a_thread_that_acts_as_a_user_is_root_again_afterwards(tmp_path):
    closed = tmp_path / "closed"
    closed.write_text("7")
    closed.chmod(0o600)
    with acting_as(ANN), pytest.raises(PermissionError):
        closed.read_text()
    with pytest.raises(PermissionError):
        Reach(uid=ANN, base=tmp_path, name=Path("closed")).read(9)
    assert closed.read_text() == "7"


# -- devices ---------------------------------------------------------------------------------------


@pytest.fixture
def devices():
    """Nodes like those of GPUs, which open as /dev/zero does."""
    names = [f"/dev/nvidia{i}" for i in range(4)] + ["/dev/nvidiactl"]
    if any(Path(name).exists() for name in names):
        pytest.skip("there are GPUs here")
    made = []
    for name in names:
        os.mknod(name, 0o666 | 0o020000, os.makedev(1, 5))
        made.append(name)
        os.chmod(name, 0o666)  # noqa: PTH101
    yield made
    for name in made:
        os.unlink(name)  # noqa: PTH108


@confined
def test_a_job_sees_the_devices_of_its_lease_and_no_others(node, devices):
    see = "ls /dev | grep nvidia; for d in /dev/nvidia*; do head -c 1 $d | wc -c; done"
    make = "mknod /tmp/d c 1 5; mknod d c 1 5; ls /tmp"

    async def main():
        node.want(
            node.script(1, see, workers=(1, 3)),
            node.script(2, f"{see}; {make}", workers=(0,), uid=BOB, owner="bob"),
        )
        async with node.here():
            for lease_id in (1, 2):
                await node.until(lambda i=lease_id: node.ended(i))
        assert node.log(1).split() == ["nvidia1", "nvidia3", "nvidiactl", "1", "1", "1"]
        assert node.log(2).split() == ["nvidia0", "nvidiactl", "1", "1"]
        assert node.log(2, "stderr.0").count("Operation not permitted") == 2

    run(main())


@confined
def test_devices_and_groups_that_every_job_gets_are_settings(node):
    async def main():
        node.want(node.script(1, "id -G; ls -d /dev/absent /dev/kmsg"))
        async with node.here(devices=("/dev/kmsg", "/dev/absent"), groups=("video", "4242")):
            await node.until(lambda: node.ended(1))
        assert node.log(1).splitlines() == [f"{ANN} 44 4242", "/dev/kmsg"]

    run(main())


#: Becomes root of a user namespace, and looks under the mounts over the agent's folder.
LOOKS = """
unshare -Urm sh -c 'id -u; umount -l {0}; ls {0}' 2>&1
grep Seccomp: /proc/self/status
"""


@confined
def test_a_job_makes_no_user_namespaces_unless_the_node_lets_it(node):
    async def main():
        looks = LOOKS.format(node.state_dir)
        node.want(node.script(1, looks))
        async with node.here():
            await node.until(lambda: node.ended(1))
        assert node.log(1).splitlines() == [
            "unshare: unshare failed: Operation not permitted",
            "Seccomp:\t2",
        ]
        node.want(node.script(2, looks))
        async with node.here(namespaces=True):
            await node.until(lambda: node.ended(2))
        # Even as root it cannot take the mount away, and the folder that it sees is empty.
        user, umount, filtered = node.log(2).splitlines()
        assert (user, filtered) == ("0", "Seccomp:\t2")
        assert umount.startswith(f"umount: {node.state_dir}: ")

    run(main())


@confined
def test_a_machine_that_can_refuse_no_calls_runs_jobs_and_logs_it(node, monkeypatch, caplog):
    monkeypatch.setattr(confinement.system_calls, "find_obstacle", lambda: "it is an old one")

    async def main():
        node.want(node.script(1, "grep Seccomp: /proc/self/status"))
        async with node.here():
            await node.until(lambda: node.ended(1))
        assert node.log(1) == "Seccomp:\t0\n"

    run(main())
    assert "no system calls are refused to jobs on this node: it is an old one" in caplog.text


def test_a_mode_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(InputError, match="'no'; it must be auto, required, off"):
        find_confinement("no", tmp_path)


@pytest.mark.parametrize("group", ["root", "0", "no-such-group"])
def test_groups_that_cannot_be_are_refused(tmp_path, group):
    with pytest.raises(InputError, match=f"'{group}'"):
        find_confinement("auto", tmp_path, groups=(group,))


# -- machines without it ---------------------------------------------------------------------------


def spaceless(folder):
    (folder / "bwrap").write_text("#!/bin/sh\necho no permission to make namespaces >&2\nexit 1\n")
    (folder / "bwrap").chmod(0o755)


STORIES = {
    "the agent does not run as root": lambda monkeypatch, _folder: monkeypatch.setattr(
        confinement.os, "geteuid", lambda: 1000
    ),
    "bubblewrap is not installed; apt-get install bubblewrap": lambda *_: None,
    "no permission to make namespaces": lambda _, folder: spaceless(folder),
    "isolation is off": lambda *_: None,
}


@pytest.mark.parametrize("why", STORIES)
def test_an_agent_that_cannot_keep_jobs_apart_says_so_in_one_line(
    tmp_path, monkeypatch, caplog, why
):
    caplog.set_level(logging.INFO)
    if "root" not in why:
        monkeypatch.setattr(confinement.os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    STORIES[why](monkeypatch, tmp_path)
    mode = "off" if "off" in why else "auto"
    assert find_confinement(mode, tmp_path) is None
    (line,) = caplog.messages
    assert line.startswith("jobs on this node trust one another, and the agent them: ")
    assert why in line
    if mode == "auto":
        with pytest.raises(InputError, match=f"isolation is required.*{why}"):
            find_confinement("required", tmp_path)


@confined
@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_lease_of_a_scheduler_of_the_release_before_has_no_uid(node, mode, caplog):
    async def main():
        node.want(node.script(1, "id -u", uid=None))
        async with node.here(mode):
            return await node.until(lambda: node.ended(1))

    report = asyncio.run(asyncio.wait_for(main(), 60))
    if mode == "auto":
        assert (report.reason, node.log(1)) == (EndReason.COMPLETED, "0\n")
        assert "lease 1 runs as root" in caplog.text
    else:
        assert (report.reason, node.log(1)) == (EndReason.FAILED, "")
        assert "gives it no uid" in report.message
