"""What `helm test` runs: asks the scheduler whether it works, and changes nothing."""

import json
import os
import sys
import time
import urllib.error
import urllib.request

SERVER, TOKEN = os.environ["LEASEHOLD_SERVER"], os.environ["LEASEHOLD_TOKEN"]


def ask(path: str, body: object = None) -> dict[str, object]:
    """Return the answer to a request; POST if there is a body."""
    request = urllib.request.Request(
        SERVER + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def until_ready(limit_s: float = 120.0) -> dict[str, object]:
    """Return what /readyz says once it says yes."""
    end = time.monotonic() + limit_s
    while True:
        try:
            return ask("/readyz")
        except OSError as error:  # HTTPError is one
            if time.monotonic() > end:
                sys.exit(f"{SERVER}/readyz does not answer 200: {error}")
            time.sleep(2)


def main() -> None:
    """Check it."""
    print("ready:", until_ready())
    who = ask("/v1/whoami")
    print("token:", who["subject"], who["role"])
    nodes = ask("/v1/nodes")["nodes"]
    print("nodes:", len(nodes))


main()
