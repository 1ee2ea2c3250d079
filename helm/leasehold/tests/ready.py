# ruff: noqa: INP001, S310, ANN001, ANN201 - a script of the chart; the address is the release's Service
"""What `helm test` runs: asks the scheduler whether it works, and changes nothing."""

import json
import os
import sys
import time
import urllib.error
import urllib.request

SERVER, TOKEN = os.environ["LEASEHOLD_SERVER"], os.environ["LEASEHOLD_TOKEN"]
LIMIT_S = 120.0
JOB = {"name": "helm-test", "project": "helm-test", "command": ["true"], "total_steps": 1}


def ask(path, body=None):
    """Return status and answer of a request; POST if there is a body."""
    request = urllib.request.Request(
        SERVER + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")


def until(path, good, body=None):
    """Ask until the status is a good one; a standby sends writers away."""
    end, said = time.monotonic() + LIMIT_S, ""
    while time.monotonic() < end:
        try:
            status, answer = ask(path, body)
        except OSError as error:
            said = str(error)
        else:
            if status in good:
                return answer
            said = f"{status} {answer}"
        time.sleep(1)
    return sys.exit(f"{SERVER}{path}: {said}")


sys.stdout.write(f"ready: {until('/readyz', {200})}\n")
sys.stdout.write(f"token: {until('/v1/whoami', {200})['role']}\n")
# 422: the scheduler understands the job and says why it cannot run, such as no nodes yet.
sys.stdout.write(f"job: {until('/v1/jobs?dry_run=true', {200, 201, 422}, JOB)}\n")
sys.stdout.write("Leasehold works\n")
