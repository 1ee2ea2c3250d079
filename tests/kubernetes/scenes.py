"""What most tests begin with."""

from __future__ import annotations

from fake_nodes import FakeNode
from installation import JOBS, eventually

PODS = f"/api/v1/namespaces/{JOBS}/pods"
#: One long round, for events that must happen within a lease on a slow machine.
ONE_ROUND = {"engine.round_length_s": 90, "leases.node_timeout_s": 60}


def one_node(**changes):
    return FakeNode(**{"name": "ada", "address": "127.0.11.1", "gpus": 1} | changes)


def two_nodes(**changes):
    return [one_node(**changes), one_node(name="bert", address="127.0.11.2", **changes)]


def other_than(node):
    return {"ada": "bert", "bert": "ada"}[node]


def await_steps(kubelets, job, count=5, *, attempt=1):
    """Wait until a job's container of that attempt or a later one has done so many steps."""

    def done():
        return [
            container
            for container in kubelets.containers(job)
            if int(container.env["LEASEHOLD_ATTEMPT"]) >= attempt and container.steps >= count
        ]

    eventually(f"{job} runs", done)
    return kubelets.running(job)[0]
