"""Which pod security level the namespace of the jobs enforces: said once, or refused."""

from __future__ import annotations

import logging

import pytest

from agent.kubernetes.pods.pods import PodSettings
from agent.kubernetes.pods.security import check_level, security_level
from scheduler.errors import ClusterError

ENFORCE = "pod-security.kubernetes.io/enforce"


def namespace(level=None):
    labels = {} if level is None else {ENFORCE: level}
    return {"metadata": {"name": "leasehold-jobs", "labels": labels}}


@pytest.mark.parametrize(
    ("level", "severity", "said"),
    [
        ("restricted", "INFO", "enforces the pod security level 'restricted'"),
        ("baseline", "WARNING", "'baseline': a job may run as root in its container"),
        ("privileged", "WARNING", f"'privileged': only .* label it {ENFORCE}=restricted"),
        (None, "WARNING", "enforces no pod security level: only the scheduler's list"),
        ("odd", "WARNING", "only the scheduler's list"),
    ],
)
def test_an_agent_says_the_level_in_one_line_at_its_start(play, caplog, level, severity, said):
    caplog.set_level(logging.INFO)

    async def scene(stage):
        stage.api.namespaces["leasehold-jobs"] = namespace(level)
        await stage.backend.open()

    play(scene)
    lines = [r for r in caplog.records if "namespace 'leasehold-jobs', which" in r.message]
    (line,) = lines
    assert line.levelname == severity
    assert "\n" not in line.message
    import re

    assert re.search(said, line.message)


def test_an_agent_that_may_not_read_it_says_so_and_begins(play, failure, caplog):
    async def scene(stage):
        refusal = failure(403, "Forbidden", 'user "agent" cannot get namespaces')
        stage.api.fault("GET", "/namespaces/leasehold-jobs", refusal)
        await stage.backend.open()

    play(scene)
    assert "level 'leasehold-jobs' enforces is not known" in caplog.text


@pytest.mark.parametrize(
    ("level", "least", "fine"),
    [
        ("restricted", "restricted", True),
        ("restricted", "baseline", True),
        ("baseline", "restricted", False),
        ("privileged", "baseline", False),
        (None, "baseline", False),
        (None, "any", True),
    ],
)
def test_a_namespace_that_enforces_too_little_is_refused_where_the_settings_say_so(
    level, least, fine
):
    found, line = security_level(namespace(level))
    if fine:
        check_level(found, line, least=least)
        return
    with pytest.raises(ClusterError, match=rf"asks for '{least}' \(kubernetes.pod_security\)"):
        check_level(found, line, least=least)


def test_an_agent_ends_in_a_namespace_that_enforces_too_little(play):
    async def scene(_stage):
        raise AssertionError("it has begun")

    with pytest.raises(ClusterError, match="asks for 'restricted'"):
        play(scene, settings=PodSettings(pod_security="restricted"))
