"""Write the dump that a new revision of the schema needs: ``python leave_behind.py > FILE.sql``.

A scheduler and an agent of the installed release run a few jobs on a SQLite database; then the
scheduler is killed, so that journal entries lie behind its last snapshot.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PORT = 18642
QUICK = {
    "engine.round_length_s": 6,
    "leases.notice_s": 0.5,
    "leases.grace_s": 0.5,
    "store.snapshot_entries": 12,
    "server.port": PORT,
}


def leave_behind(folder: Path) -> Path:
    """Run a scheduler, kill it, and return its database."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    env |= {"LEASEHOLD_SERVER": f"http://127.0.0.1:{PORT}"}
    running = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "leasehold", *arguments]
        running.append(subprocess.Popen(command, env=env, stdout=sys.stderr))
        return running[-1]

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "leasehold", *arguments]
        return subprocess.run(
            command, env=env, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def submit(name: str, *arguments: str) -> str:
        job: str = run("submit", "--name", name, *arguments).split()[0]
        return job

    state = folder / "state"
    sets = [f"--set={key}={value}" for key, value in QUICK.items()]
    scheduler = start("serve", f"--set=state_dir={state}", *sets)
    token = state / "admin.token"
    while not token.exists():
        time.sleep(0.1)
    env["LEASEHOLD_TOKEN"] = token.read_text().strip()
    secret = folder / "secret"
    run("token", "enrol", "laptop", "--out", str(secret), "--retry-for", "1m")
    agent = start(
        *("agent", "--node", "laptop", "--worker", "v100:2", "--worker", "k80:1"),
        *("--state-dir", str(folder / "agent"), "--enrol-file", str(secret)),
    )
    try:
        while "laptop" not in run("nodes"):
            time.sleep(0.5)
        done = ("--duration", "2s", "--label", "team=a", "--client-id", "one")
        submit("done", *done, "--", "/bin/sleep", "1")
        submit("fails", "--retries", "0", "--", "/bin/false")
        figures = ("--throughput", "v100=2", "--throughput", "k80=1", "--job-type", "toy")
        runs = submit(
            *("runs", "--steps", "1000", *figures, "--deadline", "30d", "--", "/bin/sleep", "60")
        )
        submit("held", "--workers", "2", "--hold", "--", "/bin/sleep", "60")
        submit("later", "--after", runs, "--", "/bin/sleep", "60")
        while "running" not in run("job", runs):
            time.sleep(0.5)
        run("project", "set", "vision", "--max-jobs", "5")
        run("policy", "set", "max_throughput")
        run("token", "create", "ann", "--project", "vision")
        run("requeue", runs)
        while run("job", runs, "--json").count('"lease_id"') < 2 or _behind(state) < 3:
            time.sleep(0.5)
    finally:
        scheduler.kill()
        scheduler.wait()
        agent.send_signal(signal.SIGTERM)
        agent.wait()
    return state / "leasehold.db"


def _behind(state: Path) -> int:
    """Return how many entries lie behind the last snapshot."""
    with sqlite3.connect(state / "leasehold.db") as connection:
        query = "SELECT count(*) FROM journal WHERE sequence > (SELECT max(sequence) FROM snapshot)"
        return int(connection.execute(query).fetchone()[0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, sqlite3.connect(leave_behind(Path(name))) as found:
        print("\n".join(found.iterdump()))
