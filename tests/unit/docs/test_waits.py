"""The page of waits matches the program."""

import re
from pathlib import Path

import pytest

from agent.client_settings import ClientSettings
from agent.endpoint import endpoint
from agent.kubernetes import backend as kubernetes_backend
from agent.kubernetes.node import image_pulls, watch, workers
from agent.kubernetes.pods.ends import StartBounds
from agent.link.http_link import LinkSettings
from agent.loop import LAST_OUTPUT_S
from agent.process.clearing import STUCK_S
from agent.settings import AgentSettings
from leasehold.daemon import token_review
from scheduler.logs import following
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.sql.databases import LOCK_TIMEOUT_S

PAGE = Path(__file__).parents[3] / "docs/operations/waits.md"
BOUNDS, CLIENT, LINK, LOOP = StartBounds(), ClientSettings(), LinkSettings(), AgentSettings()
SCHEDULER = RuntimeSettings()


@pytest.mark.parametrize(
    ("row", "seconds"),
    [
        ("a new desired set", (LINK.wait_s, LINK.slack_s)),
        ("an answer to a report", (LINK.reply_s,)),
        ("a token, where the scheduler refuses", (LOOP.retry_refused_s, LOOP.retry_refused_most_s)),
        ("the workers' driver", (LOOP.health_most_s,)),
        ("a connection of a job's", (endpoint.STRANGER_MOST_S,)),
        ("the last of their output", (LAST_OUTPUT_S,)),
        ("the end of a lease's output", (following.MARK_WAIT_S,)),
        ("the rest of what has just ended", (following.SETTLE_S,)),
        ("jobs that read nothing", (endpoint.CLOSE_MOST_S,)),
        ("the processes of a lease", (LOOP.start_most_s,)),
        ("the end of killed processes", (STUCK_S,)),
        ("a connection to the API server", (CLIENT.connect_s, CLIENT.request_s)),
        ("a watch that says nothing", (CLIENT.silent_s,)),
        ("a watch to its end", (CLIENT.watch_s, CLIENT.slack_s)),
        ("output that pauses", (CLIENT.follow_s,)),
        ("the API server, to make a pod", (BOUNDS.trouble_s,)),
        ("a node to take the pod", (BOUNDS.bind_s,)),
        ("the pod's volumes", (BOUNDS.prepare_s,)),
        ("each container before", (BOUNDS.image_s,)),
        ("what Kubernetes says is wrong", (BOUNDS.trouble_s,)),
        ("the node's state", (watch.LOOK_MOST_S,)),
        ("a deleted pod to be gone", (kubernetes_backend.STUCK_S,)),
        ("the device plugin", (workers.PLUGIN_AWAY_S,)),
        ("an image that is pulled ahead", (image_pulls.PULL_MOST_S,)),
        ("a node that could not start", (SCHEDULER.engine.avoid_node_s,)),
        ("a node that is silent", (SCHEDULER.node_timeout_s,)),
        ("a lock in the database", (LOCK_TIMEOUT_S,)),
        ("Kubernetes' word on an agent's token", (token_review.TIMEOUT_S,)),
    ],
)
def test_a_bound_on_the_page_is_the_programs(row, seconds):
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row}")]
    told = [float(number) for number in re.findall(r"(\d+) s\b", line.split("|")[2])]
    assert told[: len(seconds)] == list(seconds)


def test_a_lease_is_revoked_only_after_every_bound_of_its_agent():
    assert SCHEDULER.start_timeout_s > BOUNDS.most_s
    assert "`leases.start_timeout_s` (1 h)" in PAGE.read_text()
    assert SCHEDULER.start_timeout_s == 3600.0
