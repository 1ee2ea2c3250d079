"""Every route that an agent's token is not for, as the service itself names them."""

from __future__ import annotations


def others_routes(document, *, job, node):
    """Yield (method, path, address) of each operation that is not for agents.

    Args:
        document: the service's OpenAPI document.
        job: a job of another user.
        node: another node.
    """
    given = {"job_id": job, "name": node, "token_id": "t-1", "attempt": "1", "action": "drain"}
    for path, operations in document["paths"].items():
        if path.startswith("/v1/agent/") or path == "/v1/openapi.json":
            continue
        at = path
        for name, value in given.items():
            at = at.replace(f"{{{name}}}", value)
        for method in operations:
            yield method.upper(), path, at
