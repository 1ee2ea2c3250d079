"""Each alert fires on its own condition only: promtool evaluates the rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import resources

import pytest
import yaml

from leasehold_testing.monitored import promtool

ALERTS = resources.files("leasehold") / "monitoring" / "alerts.yaml"
RULES = {rule["alert"]: rule for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}


@dataclass(frozen=True)
class Case:
    """Samples of each minute, as promtool writes series: ``0+1x9`` are 0, 1, ... 9.

    Attributes:
        alert: the one that fires.
        bad: series -> values, on which it does.
        good: as above, on which it does not; series left out are as in ``bad``.
        at: when, since the first scrape.
        labels: of the alert, beside its severity.
        value: of the expression, as annotations have it.
    """

    alert: str
    bad: dict
    good: dict
    at: str = "1h"
    labels: dict = field(default_factory=dict)
    value: str = "1"


LEADS = {"leasehold_leading": "1x300"}
#: Answers within 1, 60 and any number of seconds: all take more than one.
SLOW = {
    'leasehold_{}_seconds_bucket{{le="1"}}': "0x300",
    'leasehold_{}_seconds_bucket{{le="60"}}': "0+10x300",
    'leasehold_{}_seconds_bucket{{le="+Inf"}}': "0+10x300",
}


def slow(name):
    return {series.format(name): values for series, values in SLOW.items()}


def quick(name):
    return dict.fromkeys(slow(name), "0+10x300")


CASES = [
    # A scheduler that was never there, and one that comes at the 50th minute.
    Case("LeaseholdDown", {}, {"leasehold_leading": "_x50 1x300"}),
    Case(
        "LeaseholdNoLeader",
        {"leasehold_leading": "0x300"},
        # One of two stands by.
        {"leasehold_leading": "0x300", 'leasehold_leading{instance="b"}': "1x300"},
    ),
    Case(
        "LeaseholdRoundsStandStill",
        LEADS | {"leasehold_round_number": "7x300", 'leasehold_jobs{status="running"}': "2x300"},
        {"leasehold_round_number": "7+1x300"},
    ),
    Case(
        "LeaseholdRoundsStandStill",
        LEADS | {"leasehold_round_number": "7x300", 'leasehold_jobs{status="running"}': "2x300"},
        {'leasehold_jobs{status="running"}': "0x300"},  # an idle service plans no rounds
    ),
    Case(
        "LeaseholdSolvesFail",
        {"leasehold_solve_failures_total": "0+1x300"},
        {"leasehold_solve_failures_total": "0x50 1x300"},
    ),
    Case("LeaseholdSolvesAreSlow", slow("solve"), quick("solve")),
    Case("LeaseholdStoreIsSlow", slow("commit"), quick("commit")),
    Case(
        "LeaseholdNoAgents",
        LEADS | {"leasehold_agents_connected": "0x300"},
        {"leasehold_agents_connected": "1x300"},
    ),
    Case(
        "LeaseholdWorkersOutOfService",
        {
            'leasehold_workers{worker_type="v100",state="known"}': "8x300",
            'leasehold_workers{worker_type="v100",state="in_service"}': "6x300",
        },
        {'leasehold_workers{worker_type="v100",state="in_service"}': "8x300"},
        labels={"worker_type": "v100"},
        value="2",
    ),
    Case(
        "LeaseholdWorkersIdleWhileJobsWait",
        {
            'leasehold_jobs_waiting{reason="turn"}': "3x300",
            'leasehold_workers{worker_type="v100",state="in_service"}': "8x300",
            'leasehold_workers{worker_type="v100",state="busy"}': "3x300",
        },
        {'leasehold_workers{worker_type="v100",state="busy"}': "4x300"},
    ),
    Case(
        "LeaseholdWorkersIdleWhileJobsWait",
        {
            'leasehold_jobs_waiting{reason="turn"}': "3x300",
            'leasehold_workers{worker_type="v100",state="in_service"}': "8x300",
            'leasehold_workers{worker_type="v100",state="busy"}': "3x300",
        },
        {'leasehold_jobs_waiting{reason="turn"}': "0x300"},
    ),
    Case(
        "LeaseholdJobsCannotRun",
        {'leasehold_jobs_waiting{reason="too_large"}': "2x300"},
        {'leasehold_jobs_waiting{reason="too_large"}': "0x300"},
        at="2h",
        labels={"reason": "too_large"},
        value="2",
    ),
    Case(
        "LeaseholdJobsFail",
        {'leasehold_jobs_ended_total{status="failed"}': "0+1x300"},
        {
            'leasehold_jobs_ended_total{status="failed"}': "0x300",
            'leasehold_jobs_ended_total{status="completed"}': "0+1x300",
        },
    ),
    Case(
        "LeaseholdNodesQuarantined",
        {'leasehold_nodes_doubted{state="quarantined"}': "1x300"},
        {
            'leasehold_nodes_doubted{state="quarantined"}': "0x300",
            'leasehold_nodes_doubted{state="avoided"}': "1x300",
        },
    ),
    Case(
        "LeaseholdWorkersRefused",
        {"leasehold_workers_refused": "4x300"},
        {"leasehold_workers_refused": "0x300"},
        value="4",
    ),
    Case(
        "LeaseholdTokenReused",
        {"leasehold_agent_tokens_reused_total": "0x30 1x300"},
        {"leasehold_agent_tokens_reused_total": "0x300"},
    ),
    Case(
        "LeaseholdGpusIdle",
        {'leasehold_gpus_idle{project="vision"}': "4x300"},
        {'leasehold_gpus_idle{project="vision"}': "4x20 0x280"},
        labels={"project": "vision"},
        value="4",
    ),
    Case(
        "LeaseholdTurnsFail",
        {"leasehold_turns_failed_total": "0x55 1x300"},
        {"leasehold_turns_failed_total": "1x300"},
    ),
    Case(
        "LeaseholdLaunchesTakeLong",
        {
            'leasehold_launching_worker_seconds_total{project="vision"}': "0+20x300",
            'leasehold_worker_seconds_total{project="vision"}': "0+100x300",
        },
        {'leasehold_launching_worker_seconds_total{project="vision"}': "0+5x300"},
        at="4h",
    ),
    Case(
        "LeaseholdEventLoopStalls",
        {"leasehold_event_loop_stalls_total": "0+2x300"},
        {"leasehold_event_loop_stalls_total": "0x300"},
    ),
]


def scraped(series):
    """Return series as promtool takes them, with the label of the job that scrapes them."""
    named = []
    for name, values in series.items():
        inside = name.partition("{")[2].rstrip("}")
        given = ['job="leasehold"', *filter(None, [inside])]
        named.append({"series": f"{name.partition('{')[0]}{{{','.join(given)}}}", "values": values})
    return named


def expected(case):
    """Return the alert as promtool is to see it."""
    rule = RULES[case.alert]
    told = {}
    filled = {f"{{{{ $labels.{label} }}}}": value for label, value in case.labels.items()}
    filled["{{ $value }}"] = case.value
    for key, text in rule["annotations"].items():
        told[key] = text
        for place, value in filled.items():
            told[key] = told[key].replace(place, value)
    # What `absent` says of a series that is not there.
    absent = {"job": "leasehold"} if rule["expr"].startswith("absent") else {}
    return {"exp_labels": rule["labels"] | case.labels | absent, "exp_annotations": told}


def trial(case, series, alerts):
    asked = {"eval_time": case.at, "alertname": case.alert, "exp_alerts": alerts}
    return {"interval": "1m", "input_series": scraped(series), "alert_rule_test": [asked]}


def check(folder, *trials):
    (folder / "alerts.yaml").write_bytes(ALERTS.read_bytes())
    (folder / "trials.yaml").write_text(
        json.dumps({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": trials})
    )
    return promtool("test", "rules", folder / "trials.yaml")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_on_what_it_is_about_and_not_otherwise(case, tmp_path):
    check(
        tmp_path,
        trial(case, case.bad, [expected(case)]),
        trial(case, case.bad | case.good, []),
    )


def test_every_alert_is_tried():
    assert {case.alert for case in CASES} == set(RULES)


def test_promtool_tells_an_alert_that_does_not_fire(tmp_path):
    case = CASES[1]
    with pytest.raises(AssertionError, match="alertname: LeaseholdNoLeader"):
        check(tmp_path, trial(case, case.bad | case.good, [expected(case)]))
