"""Objects of the chart for Prometheus and Grafana."""

from __future__ import annotations

import json
import tomllib

import yaml
from chart_rendering import configuration

from leasehold_testing.monitored import check_expressions, promtool


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


def test_alerts_speak_of_figures_that_the_daemon_shows(everything, ha, tmp_path):
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
    assert "1080s" not in json.dumps(alerts)
    for number, release in enumerate((everything, ha)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(release.one("PrometheusRule")["spec"]))
        promtool("check", "rules", file)


def test_the_dashboard_speaks_of_figures_that_the_daemon_shows(everything, minimal):
    assert not any("dashboard" in m["metadata"]["name"] for m in minimal.all("ConfigMap"))
    one = everything.one("ConfigMap", "-dashboard")
    assert one["metadata"]["labels"]["grafana_dashboard"] == "yes"
    assert one["metadata"]["annotations"]["grafana_folder"] == "GPUs"
    dashboard = json.loads(one["data"]["leasehold.json"])
    check_expressions([t["expr"] for panel in dashboard["panels"] for t in panel["targets"]])
