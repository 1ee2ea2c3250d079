"""Times of Kubernetes' client, in a module without it, so that options need no client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Times of the client.

    Attributes:
        request_s: until a request is answered.
        connect_s: until a connection is open.
        watch_s: how long the server is asked to keep a watch open.
        slack_s: how much longer it may take before the connection counts as dead.
        silent_s: how long a watch may be silent before it is opened again. The server sends a
            bookmark each minute, so that only a connection which is dead is silent for longer.
        retries: further attempts after the server was too busy, or did not answer.
        retry_least_s: first wait before one; doubles, half of it by chance.
        retry_most_s: longest such wait.
        follow_s: how long a stream of output may be silent before it is opened again.
    """

    request_s: float = 20.0
    connect_s: float = 5.0
    watch_s: int = 240
    slack_s: float = 20.0
    silent_s: float = 90.0
    retries: int = 3
    retry_least_s: float = 0.25
    retry_most_s: float = 8.0
    follow_s: float = 120.0
