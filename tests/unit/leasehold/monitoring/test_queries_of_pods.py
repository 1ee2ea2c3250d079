"""The how-to's queries of dcgm-exporter's series give its answers: promtool evaluates them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from agent.kubernetes.names import pod_name
from leasehold_testing.monitored import promtool

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "see-what-was-used.md"
BUSY, IDLE = "train-k3v9wq2d", "my-sleeper-2-a1b2c3d4"


def series(pod, values, *, namespace="leasehold-jobs", device="nvidia0"):
    labels = f'device="{device}",namespace="{namespace}",pod="{pod}",container="job"'
    return {"series": f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}", "values": values}


def labels_of(pod, project):
    inside = f'namespace="leasehold-jobs",pod="{pod}",label_leasehold_dev_project="{project}"'
    return {"series": f"kube_pod_labels{{{inside}}}", "values": "1x120"}


SERIES = [
    # A gang of two over two pods, one of which waits for the other; an attempt before it.
    series(pod_name(BUSY, 2, 0), "90x120"),
    series(pod_name(BUSY, 2, 1), "30x120", device="nvidia1"),
    series(pod_name(BUSY, 1, 0), "60x29 stale"),
    series(pod_name(IDLE, 1, 0), "1x120", device="nvidia2"),
    series("somebody-1-0", "50x120", namespace="default"),
    series("", "0x120", namespace="", device="nvidia3"),
    labels_of(pod_name(BUSY, 2, 0), "vision"),
    labels_of(pod_name(BUSY, 2, 1), "vision"),
    labels_of(pod_name(IDLE, 1, 0), "speech"),
]
#: In the order of the page: labels -> value after two hours.
HOURS = {f'{{job_id="{BUSY}"}}': (0.9 + 0.3) * 121 / 60 + 0.6 * 30 / 60}
HOURS[f'{{job_id="{IDLE}"}}'] = 0.01 * 121 / 60
EXPECTED = [
    {f'{{job_id="{BUSY}"}}': 60.0, f'{{job_id="{IDLE}"}}': 1.0},
    {f'{{job_id="{IDLE}"}}': 1.0},
    HOURS,
    {
        '{label_leasehold_dev_project="vision"}': 60.0,
        '{label_leasehold_dev_project="speech"}': 1.0,
    },
]


def test_the_queries_of_the_page_name_jobs_and_projects(tmp_path):
    queries = re.findall(r"```promql\n(.+?)\n```", PAGE.read_text())
    assert len(queries) == len(EXPECTED)
    asked = [
        {
            "expr": query,
            "eval_time": "2h",
            "exp_samples": [{"labels": name, "value": value} for name, value in answer.items()],
        }
        for query, answer in zip(queries, EXPECTED, strict=True)
    ]
    trial = {"interval": "1m", "input_series": SERIES, "promql_expr_test": asked}
    (tmp_path / "trials.yaml").write_text(json.dumps({"rule_files": [], "tests": [trial]}))
    promtool("test", "rules", tmp_path / "trials.yaml")
