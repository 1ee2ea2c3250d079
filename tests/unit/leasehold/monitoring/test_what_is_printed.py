"""`leasehold alerts` and `leasehold dashboard` print what Prometheus and Grafana take."""

from __future__ import annotations

import json
import re

import pytest
import typer
import yaml

from leasehold.cli.local.monitoring import alert_rules, alerts, dashboard
from leasehold_testing.monitored import check_expressions, promtool
from leasehold_testing.written import COPIES
from scheduler.views.metrics import Metrics


@pytest.fixture
def rules(capsys):
    alerts()
    return capsys.readouterr().out


@pytest.fixture
def board(capsys):
    dashboard()
    return json.loads(capsys.readouterr().out)


def test_prometheus_takes_the_rules(rules, tmp_path):
    file = tmp_path / "leasehold.rules.yaml"
    file.write_text(rules)
    count = len(yaml.safe_load(rules)["groups"][0]["rules"])
    assert f"{count} rules found" in promtool("check", "rules", "--lint=all", file)


def test_rules_speak_of_figures_that_the_daemon_shows(rules):
    (group,) = yaml.safe_load(rules)["groups"]
    check_expressions(rule["expr"] for rule in group["rules"])
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert len(rule["annotations"]["description"]) > 30
        # Every series is that of one scheduler.
        assert len(re.findall(r"\bleasehold_\w+", rule["expr"])) == rule["expr"].count(
            '{job="leasehold"'
        )


def test_an_expression_of_an_unknown_figure_label_or_value_is_found():
    with pytest.raises(AssertionError, match="leasehold_jobz"):
        check_expressions(['sum(leasehold_jobz{status="failed"})'])
    with pytest.raises(AssertionError, match="lost"):
        check_expressions(['sum(leasehold_jobs{status="lost"})'])
    with pytest.raises(AssertionError, match="by \\(node\\)"):
        check_expressions(["sum by (node) (leasehold_jobs)"])


def test_rules_are_for_the_job_the_rounds_and_the_deadline_that_are_named(tmp_path):
    rules = alert_rules(job="gpus", round_length_s=110.1, deadline_s=5)
    assert "leasehold_leading" in rules
    assert 'job="leasehold"' not in rules.partition("groups:")[2]
    assert "1080s" not in rules.partition("groups:")[2]
    by_name = {rule["alert"]: rule for rule in yaml.safe_load(rules)["groups"][0]["rules"]}
    assert '{job="gpus"}[331s]' in by_name["LeaseholdRoundsStandStill"]["expr"]
    assert by_name["LeaseholdWorkersIdleWhileJobsWait"]["for"] == "331s"
    assert by_name["LeaseholdSolvesAreSlow"]["expr"].endswith("> 0.5 * 5")
    file = tmp_path / "rules.yaml"
    file.write_text(rules)
    promtool("check", "rules", "--lint=all", file)


@pytest.mark.parametrize("job", ["", 'a"b', "a\\b", "a\nb"])
def test_a_name_that_would_break_the_rules_is_refused(job):
    with pytest.raises(typer.BadParameter, match="no name of a job"):
        alert_rules(job=job, round_length_s=360, deadline_s=60)


def test_the_dashboard_speaks_of_figures_that_the_daemon_shows(board):
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    check_expressions(asked)
    for expression in asked:
        # One scheduler of those that are scraped; without Kubernetes series have no namespace.
        series = len(re.findall(r"\b(?:leasehold|process)_\w+", expression))
        assert expression.count('{namespace=~"$namespace",job=~"$job"') == series, expression
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert variables["namespace"]["allValue"] == ".*"
    assert "label_values(leasehold_leading" in variables["job"]["query"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    held = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(held)) == len(held), "panels lie over one another"


def test_prometheus_takes_the_figures():
    assert promtool("check", "metrics", given=Metrics(process=False).render().decode()) == ""


@pytest.mark.parametrize(("source", "copy"), COPIES, ids=lambda file: file.name)
def test_the_chart_has_the_same(source, copy):
    assert copy.read_bytes() == source.read_bytes(), "run `make written`"


def test_no_window_is_shorter_than_a_few_scrapes():
    rules = yaml.safe_load(alert_rules(job="gpus", round_length_s=12, deadline_s=5))
    by_name = {rule["alert"]: rule for rule in rules["groups"][0]["rules"]}
    assert '{job="gpus"}[300s]' in by_name["LeaseholdRoundsStandStill"]["expr"]
