"""The port on which rank 0 of a gang listens for the others."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.protocol.desired import DesiredLease


def find_port_conflict(lease: DesiredLease) -> str:
    """Return why rank 0 of a lease could not listen on its port; empty if it can.

    A program that begins to listen between this check and the start of the job goes unnoticed. The
    port depends on the lease, so the job's next lease has another one.
    """
    if lease.world_size < 2 or lease.rank:
        return ""
    dual = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as launchers do
        if dual:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", lease.master_port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return ""  # the job may have other means
            return f"another program on the node listens on port {lease.master_port}, MASTER_PORT"
    return ""
