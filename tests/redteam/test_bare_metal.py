"""A hostile job on a node with an agent that is root: beside jobs of another owner, and of its own.

One scheduler and two agents on one machine, as unkind as it gets. The job that attacks is
``loot.py``; each attack of it is a test here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest
from loot import MARK
from real_service import as_user, running_service

from agent.process.cells.system_calls import MACHINES

PYTHON = "/usr/bin/python3"  # one that jobs can reach
missing = [
    why
    for why, there in {
        "keeping jobs apart needs root": os.geteuid() == 0,
        "bubblewrap is not installed": shutil.which("bwrap") is not None,
        f"there is no {PYTHON}": Path(PYTHON).exists(),
    }.items()
    if not there
]
pytestmark = [
    pytest.mark.redteam,
    pytest.mark.skipif(bool(missing), reason="; ".join(missing)),
]
#: A job with secrets everywhere, which runs until it is asked to leave.
VICTIM = f"""
echo {MARK}-output; echo {MARK} > /tmp/secret; echo {MARK} > /dev/shm/secret
echo {MARK} > "$LEASEHOLD_CHECKPOINT_DIR/secret"
trap 'exit 75' TERM
while :; do sleep 0.1; done
"""
#: Counts on from its checkpoint, and prints its node and user.
MOVER = """
cd "$LEASEHOLD_CHECKPOINT_DIR"
echo "$LEASEHOLD_ATTEMPT $(id -u) $(cat count 2>/dev/null || echo 0)" >> attempts
trap 'exit 75' TERM
while :; do
    n=$(($(cat count 2>/dev/null || echo 0) + 1)); echo $n > half; mv half count
    [ $n -ge 60 ] && [ "$LEASEHOLD_ATTEMPT" -gt 1 ] && exit 0
    sleep 0.1
done
"""


class Scene:
    """Victims, an attacker and the attacker's loot."""

    def __init__(self, folder):
        self.folder, self.shared = folder, folder / "shared"
        self.agents, self.loot, self.jobs = {}, {}, {}
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        self.before, self.after = {}, {}

    def state(self, node):
        return self.folder / node

    async def play(self):
        async with running_service(self.folder) as (running, admin):
            self.url = running.url
            self.admin_token = running.admin_token_file
            await self.until(running.leader_known, "somebody leads")
            await self.begin_agent(admin, "n1", "v100:4")
            people = {name: await as_user(admin, name) for name in ("bob", "eve")}
            for name, owner in (("prey", "bob"), ("sister", "eve")):
                await self.submit(admin, people[owner], name, VICTIM)
            await self.submit(admin, people["bob"], "mover", MOVER, ["v100", "k80"])
            await self.until_running(admin, "prey", "sister", "mover")
            # Only now, so that no job can begin on the node that the mover is to move to.
            await self.begin_agent(admin, "n2", "k80:1")
            targets = self.targets()
            (self.shared / "targets").write_text(json.dumps(targets))
            shutil.copy(Path(__file__).with_name("loot.py"), self.shared / "loot.py")
            (self.shared / "loot.py").chmod(0o644)
            self.before = await self.look(admin)
            await self.submit(admin, people["eve"], "attack", None)
            loot = self.shared / "attack" / "loot"
            await self.until(loot.exists, "the attack is over", self.tell)
            self.loot = json.loads(loot.read_text())
            self.after = await self.look(admin)
            self.peak_bytes = [self.peak_of(agent.pid) for agent in self.agents.values()]
            await self.end_claimed(admin)
            await self.move(admin)

    async def begin_agent(self, admin, node, workers):
        answer = await admin.post("/v1/enrolments", json={"node": node})
        secret = answer.raise_for_status().json()["secret"]
        env = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
        env |= {"LEASEHOLD_ENROLMENT": secret, "LEASEHOLD_AGENT__ISOLATION": "required"}
        command = [sys.executable, "-m", "leasehold", "agent", "--server", self.url]
        command += ["--node", node, "--worker", workers, "--state-dir", str(self.state(node))]
        with (self.folder / f"{node}.log").open("wb") as log:
            self.agents[node] = subprocess.Popen(  # noqa: ASYNC220
                command, env=env, stdout=log, stderr=log
            )

    async def submit(self, admin, person, name, script, types=("v100",)):
        folder = self.shared / name
        command = ["/bin/sh", "-c", script]
        if script is None:
            command = [PYTHON, "loot.py", "targets", str(folder / "loot")]
        job = {
            "name": name,
            "project": "p",
            "command": command,
            "env": {"WORD": f"{MARK}-{name}" if script else ""},
            "working_dir": str(self.shared),
            "checkpoint_dir": str(folder),
            "worker_types": list(types),
            "throughputs": {"v100": 10.0, "k80": 1.0},
        }
        answer = await admin.post("/v1/jobs", json=job, headers=person)
        assert answer.status_code < 300, answer.text
        self.jobs[name] = answer.json()["job_id"]

    async def until_running(self, admin, *names):
        for name in names:
            end_s = time.monotonic() + 60
            while (await self.job(admin, name))["status"] != "running":
                assert time.monotonic() < end_s, self.tell()
                await asyncio.sleep(0.1)
            await self.until((self.shared / name).exists, f"{name} has begun", self.tell)
        await self.until((self.shared / "prey" / "secret").exists, "it has secrets", self.tell)

    async def job(self, admin, name):
        return (await admin.get(f"/v1/jobs/{self.jobs[name]}")).raise_for_status().json()

    async def look(self, admin):
        """Return state that the attack must not have changed."""
        nodes = (await admin.get("/v1/nodes")).raise_for_status().json()["nodes"]
        (node,) = (one for one in nodes if one["name"] == "n1")
        jobs = [await self.job(admin, name) for name in ("prey", "sister", "mover")]
        return {
            "workers": len(node["workers"]),
            "attempts": [(job["status"], job["attempts"]) for job in jobs],
            "agents": [agent.poll() for agent in self.agents.values()],
            "pids": {name: self.pids_of(name) for name in ("prey", "sister")},
        }

    def pids_of(self, name):
        """Return the processes of a job, but for those that come and go."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                brief = (entry / "cmdline").read_bytes().startswith(b"sleep")
                if not brief and f"{MARK}-{name}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return sorted(found)

    def targets(self):
        pids = {name: self.pids_of(name) for name in ("prey", "sister")}
        assert all(pids.values()), pids
        state, calls = self.state("n1"), MACHINES[platform.machine()]
        return {
            "server": self.url,
            "state": str(state),
            "scheduler": str(self.admin_token.parent),
            "leases": [int(path.name) for path in (state / "leases").iterdir()],
            "pids of bob": pids["prey"],
            "pids of eve": pids["sister"],
            "pids": [pid for some in pids.values() for pid in some],
            "agents": [agent.pid for agent in self.agents.values()] + [os.getpid()],
            "checkpoints of bob": str(self.shared / "prey"),
            "calls": dict(calls.refused) | {"unshare": calls.unshare},
            "devices": ["/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvidia3"],
        }

    def peak_of(self, pid):
        """Return how much memory a process has had at most, in bytes."""
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024

    async def end_claimed(self, admin):
        """Cancel a job while the attacker says of its own processes that they are that job's."""
        answer = await admin.post(f"/v1/jobs/{self.jobs['prey']}/cancel")
        assert answer.status_code < 300, answer.text
        end_s = time.monotonic() + 60
        while (await self.job(admin, "prey"))["status"] == "running":
            assert time.monotonic() < end_s, self.tell()
            await asyncio.sleep(0.1)
        self.claimed = await self.job(admin, "prey"), await self.job(admin, "attack")
        (node,) = [
            node
            for node in (await admin.get("/v1/nodes")).raise_for_status().json()["nodes"]
            if node["name"] == "n1"
        ]
        self.problems = [worker["problem"] for worker in node["workers"]]

    async def move(self, admin):
        """Have bob's job leave for the other node, and end there."""
        answer = await admin.post("/v1/nodes/n1/drain", json={"reason": "moving"})
        assert answer.status_code < 300, answer.text
        end_s = time.monotonic() + 120
        while (await self.job(admin, "mover"))["status"] != "completed":
            assert time.monotonic() < end_s, self.tell()
            await asyncio.sleep(0.2)
        self.moved = [
            tuple(map(int, line.split()))
            for line in (self.shared / "mover" / "attempts").read_text().splitlines()
        ]
        leases = (await admin.get(f"/v1/jobs/{self.jobs['mover']}/attempts")).json()
        self.moved_to = [attempt["nodes"] for attempt in leases["attempts"]]

    async def until(self, condition, what, tell=lambda: ""):
        end_s = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < end_s, f"it did not come to pass: {what}\n{tell()}"
            await asyncio.sleep(0.05)

    def tell(self):
        logs = [*self.folder.glob("*.log"), *self.folder.glob("n?/logs/*/*.log")]
        return "\n".join(f"{path}: {path.read_text()[-1500:]}" for path in logs)

    def close(self):
        for agent in self.agents.values():
            agent.send_signal(signal.SIGTERM)
            agent.wait(30)
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def scene():
    folder = Path(tempfile.mkdtemp(prefix="lh-", dir="/srv"))
    folder.chmod(0o755)
    scene = Scene(folder)
    try:
        asyncio.run(asyncio.wait_for(scene.play(), 400))
        yield scene
    finally:
        scene.close()


#: Test -> attacks in ``loot.py`` that it is about.
@pytest.mark.parametrize(
    "attack",
    [
        pytest.param("token", id="prints the agent's token"),
        pytest.param("launch", id="prints launch.json of its neighbours"),
        pytest.param("environment", id="prints the environment of its neighbours"),
        pytest.param("desired", id="prints the desired set of the node"),
        pytest.param("workers", id="claims thousands of workers with a token"),
        pytest.param("admin", id="reads the scheduler's admin token on the same machine"),
        pytest.param("kill others", id="kills a neighbour of another owner"),
        pytest.param("kill own", id="kills another job of its owner"),
        pytest.param("kill the agent", id="kills the agents and the scheduler"),
        pytest.param("trace others", id="traces a neighbour of another owner"),
        pytest.param("trace own", id="traces another job of its owner"),
        pytest.param("tmp", id="reads the /tmp of its neighbours"),
        pytest.param("checkpoints", id="reads the checkpoints of another owner"),
        pytest.param("output", id="reads the output of its neighbours"),
        pytest.param("root", id="becomes root"),
        pytest.param("calls", id="makes system calls that only reach faults of the kernel"),
        pytest.param("mounts", id="looks under mounts from a user namespace"),
        pytest.param("steps", id="tells steps in the name of another lease"),
        pytest.param("connections", id="keeps silent connections to the agent"),
        pytest.param("short lines", id="sends short lines to the agent without end"),
        pytest.param("long progress", id="leaves 64 MiB of progress"),
    ],
)
def test_a_job_that(scene, attack):
    assert scene.loot[attack].startswith("refused: "), scene.loot[attack]


def test_a_job_that_opens_devices_that_are_not_of_its_lease(scene):
    # The devices of leases themselves are in tests/live/agent/test_confinement.py.
    assert scene.loot["devices"].startswith("refused: "), scene.loot["devices"]


def test_the_attacks_changed_nothing(scene):
    assert scene.before == scene.after
    assert scene.before["workers"] == 4
    assert scene.before["agents"] == [None, None]
    assert (scene.loot["desired"], scene.loot["admin"]) == ("refused: 401",) * 2


def test_a_job_that_leaves_64_mib_of_progress_costs_the_agent_no_memory(scene):
    assert max(scene.peak_bytes) < 512 * 2**20  # the chart's settings of an agent


def test_a_job_that_claims_processes_for_another_lease_does_not_keep_it_from_ending(scene):
    prey, attack = scene.claimed
    assert (prey["status"], attack["status"]) == ("cancelled", "running")
    assert set(scene.problems) <= {"", None}


def test_the_agents_token_and_the_admins_are_there_to_be_stolen(scene):
    """The refused access is one that an attack would have found."""
    token = (scene.state("n1") / "agent.token").read_text().strip()
    assert token.startswith("lh_")
    assert token not in json.dumps(scene.loot)
    folders = [scene.state("n1"), scene.state("n2"), scene.folder / "state"]
    assert [folder.stat().st_mode & 0o077 for folder in folders] == [0, 0, 0]


def test_a_job_that_is_preempted_goes_on_from_its_checkpoint_on_another_agent_as_the_same_user(
    scene,
):
    (first, uid, nothing), (second, same, count) = scene.moved
    assert (first, second, nothing, same) == (1, 2, 0, uid)
    assert count > 0
    assert scene.moved_to == [["n1"], ["n2"]]
    folder = (scene.shared / "mover").stat()
    assert (folder.st_uid, folder.st_mode & 0o777) == (uid, 0o700)
    assert {(scene.shared / name).stat().st_uid for name in ("mover", "prey")} == {uid}
    assert {(scene.shared / name).stat().st_uid for name in ("attack", "sister")} == {uid + 1}


#: Looks for what lies around it where scheduler and agent are one process.
NOSY = """
pwd; id -u; echo 3 > steps; cat steps
cat "$0/admin.token" "$0/agent/agent.token" "$0/leasehold.db" || echo refused
"""


def test_a_job_that_prints_the_admin_token_of_up():
    folder = Path(tempfile.mkdtemp(prefix="lh-", dir="/srv"))
    state = folder / "closed" / "state"
    state.parent.mkdir(mode=0o700)
    command = [sys.executable, "-m", "leasehold", "up", "--isolation", "required"]
    command += ["--worker", "v100:1", "--state-dir", str(state), "--port", "0"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as up:
        try:
            lines = iter(up.stderr.readline, "")
            url = next(line.split()[-1] for line in lines if "listens on" in line)
            token = (state / "admin.token").read_text().strip()
            job = {"name": "nosy", "command": ["/bin/sh", "-c", NOSY, str(state)]}
            job |= {"throughputs": {"v100": 1.0}, "project": "p"}
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
                end_s = time.monotonic() + 90
                while client.get("/readyz").is_error:
                    assert time.monotonic() < end_s
                    time.sleep(0.1)
                job_id = client.post("/v1/jobs", json=job).raise_for_status().json()["job_id"]
                while (told := client.get(f"/v1/jobs/{job_id}").json())["status"] != "completed":
                    assert time.monotonic() < end_s, told
                    time.sleep(0.1)
            said = (state / "agent" / "logs" / "1" / "stdout.0.log").read_text()
            assert said.split() == ["/run/leasehold/work", "1900000000", "3", "refused"]
        finally:
            up.send_signal(signal.SIGTERM)
            up.communicate(timeout=60)
            shutil.rmtree(folder, ignore_errors=True)
