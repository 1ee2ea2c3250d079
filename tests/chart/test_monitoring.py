"""What the chart brings for Prometheus and Grafana."""

from __future__ import annotations

import json
import re
import tomllib

from chart_rendering import configuration
from prometheus_client.parser import text_string_to_metric_families

from scheduler.runtime.metrics import Metrics


def test_prometheus_asks_with_a_viewers_token_unless_none_is_needed(everything, ha):
    endpoint = everything.one("ServiceMonitor")["spec"]["endpoints"][0]
    credentials = {"name": "leasehold-viewer", "key": "viewer"}
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": credentials}
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("15s", "5s")
    assert endpoint["relabelings"]
    assert endpoint["metricRelabelings"]
    assert "authorization" not in ha.one("ServiceMonitor")["spec"]["endpoints"][0]
    assert tomllib.loads(configuration(ha))["server"]["metrics_open"] is True
    service = everything.one("Service", "shared-gpus")["metadata"]["labels"]
    selector = everything.one("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= service.items()


def exposed():
    """Return the names of all series that the daemon shows, and the values of their labels."""
    metrics = Metrics()
    metrics.set_workers({"v100": 1}, {"v100": 1}, {"v100": 1})
    metrics.set_deviation(mean=0.0, largest=0.0)
    metrics.lease_ended("completed")
    names, labels = set(), {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            names.add(sample.name)
            for label, value in sample.labels.items():
                labels.setdefault((sample.name, label), set()).add(value)
    return names, labels


def check_expressions(expressions):
    names, labels = exposed()
    assert expressions
    for text in expressions:
        used = set(re.findall(r"\b(?:leasehold|process)_[a-z_]+", text))
        assert used, text
        assert used <= names, text
        assert text.count("(") == text.count(")"), text
        assert text.count("{") == text.count("}"), text
        for name, inside in re.findall(r"\b(leasehold_[a-z_]+)\{([^}]*)\}", text):
            for label, values in re.findall(r'\b(status|reason|state)=~?"([^"]*)"', inside):
                assert set(values.split("|")) <= labels[name, label], text


def test_alerts_speak_of_figures_that_the_daemon_shows(everything):
    (group,) = everything.one("PrometheusRule")["spec"]["groups"]
    alerts = [rule for rule in group["rules"] if "alert" in rule]
    check_expressions([rule["expr"] for rule in alerts])
    for rule in alerts:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["labels"]["team"] == "platform"
        assert rule["annotations"]["summary"]
        assert len(rule["annotations"]["description"]) > 30
        assert 'namespace="gpus",job="shared-gpus"' in rule["expr"]
    assert group["rules"][-1] == {"record": "leasehold:jobs", "expr": "sum(leasehold_jobs)"}
    assert "[360s]" in json.dumps(alerts), "three rounds of the configured 120 s"


def test_the_dashboard_speaks_of_figures_that_the_daemon_shows(everything, minimal):
    assert not any("dashboard" in m["metadata"]["name"] for m in minimal.all("ConfigMap"))
    one = everything.one("ConfigMap", "-dashboard")
    assert one["metadata"]["labels"]["grafana_dashboard"] == "yes"
    assert one["metadata"]["annotations"]["grafana_folder"] == "GPUs"
    dashboard = json.loads(one["data"]["leasehold.json"])
    check_expressions([t["expr"] for panel in dashboard["panels"] for t in panel["targets"]])
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
