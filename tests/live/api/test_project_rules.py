"""Limits on fields of a project's jobs, over REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Daemon

RULES = {"entities": ["nlp"], "job_types": ["resnet*"], "max_job_weight": 2.0}
PATH = "/v1/projects/vision"


def test_a_client_that_knows_no_rules_does_not_lift_them(daemon: Daemon) -> None:
    boss = daemon.caller("operator")
    made = boss.put(PATH, json={"max_jobs": 3} | RULES).json()["limits"]
    assert {rule: made[rule] for rule in RULES} == RULES
    later = boss.put(PATH, json={"weight": 2.0}).json()["limits"]
    assert (later["weight"], later["max_jobs"]) == (2.0, None)
    assert {rule: later[rule] for rule in RULES} == RULES
    lifted = boss.put(PATH, json=dict.fromkeys(RULES)).json()["limits"]
    assert {rule: lifted[rule] for rule in RULES} == dict.fromkeys(RULES)


def test_a_user_cannot_lift_them(daemon: Daemon) -> None:
    assert daemon.caller("user").put(PATH, json=dict.fromkeys(RULES)).status_code == 403


@pytest.mark.parametrize(
    "wrong", [{"entities": ["a b"]}, {"job_types": "resnet"}, {"max_job_weight": 0}]
)
def test_a_malformed_rule_is_refused(daemon: Daemon, wrong: dict[str, object]) -> None:
    assert daemon.caller("operator").put(PATH, json=wrong).status_code == 422
