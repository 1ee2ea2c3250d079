"""Beside a job in its pod: reports whether the lease still holds, even if the agent is gone.

The kubelet asks it every other second and ends the job's container if the answer is no. So a pod
ends with its lease even if the agent has died, and if neither of them reaches the API server: all
of this happens on one node. See docs/adr/0006. Imports only the standard library and is small.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Between two questions to the agent.
ASK_EVERY_S = 2.0
#: Connections that are served at once, and how long one may be silent. The job is in the same pod.
#: It could fill the guard's memory with connections and then answer in its place.
MOST_CONNECTIONS, SILENT_MOST_S = 32, 5.0


class Term:
    """The known deadline of the lease.

    Args:
        deadline_s: on CLOCK_BOOTTIME, which all containers of a node share.
    """

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s

    def holds(self) -> bool:
        """Return whether the lease holds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) < self.deadline_s


def ask(endpoint: str, secret: str, *, timeout_s: float = 2.0) -> float | None:
    """Ask the agent for the lease's deadline; None if it gives no answer.

    Args:
        endpoint: ``tcp://host:port``.
        secret: of the lease.
        timeout_s: the longest wait for the answer.
    """
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    question = json.dumps({"secret": secret, "guard": True}).encode() + b"\n"
    try:
        address = (host.strip("[]"), int(port))
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(question)
            with connection.makefile("rb") as lines:
                answer = json.loads(lines.readline(4096))
    except (OSError, ValueError):
        return None
    deadline_s = answer.get("deadline_s") if isinstance(answer, dict) else None
    return float(deadline_s) if isinstance(deadline_s, int | float) else None


class _Server(ThreadingHTTPServer):
    """A thread for each connection; if there are too many, the oldest is closed."""

    request_queue_size = 64
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, *arguments: Any) -> None:
        self._served: deque[socket.socket] = deque()
        super().__init__(*arguments)

    def server_bind(self) -> None:
        """Bind all addresses, of IPv4 and of IPv6."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        self._served.append(request)
        if len(self._served) > MOST_CONNECTIONS:
            with contextlib.suppress(OSError):  # most have been answered, and are closed
                self._served.popleft().shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about a client that disconnected."""


def serve(term: Term, port: int) -> ThreadingHTTPServer:
    """Answer the kubelet on a port, in threads; 200 while the lease holds, else 410."""

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENT_MOST_S

        def do_GET(self) -> None:
            holds = term.holds()
            self.send_response(HTTPStatus.OK if holds else HTTPStatus.GONE)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Log nothing: the kubelet asks every other second."""

    server = _Server(("", port), Handler)
    threading.Thread(target=server.serve_forever, name="guard", daemon=True).start()
    return server


def main() -> int:
    """Guard until SIGTERM."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: over.set())
    term = Term(float(os.environ["LEASEHOLD_DEADLINE_S"]))
    server = serve(term, int(sys.argv[1]))
    while not over.is_set():
        told_s = ask(os.environ["LEASEHOLD_ENDPOINT"], os.environ["LEASEHOLD_SECRET"])
        if told_s is not None:
            term.deadline_s = told_s
        over.wait(ASK_EVERY_S)
    server.shutdown()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
