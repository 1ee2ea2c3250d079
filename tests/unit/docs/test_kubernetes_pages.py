"""The guides about Kubernetes: values that the chart takes, jobs that the scheduler takes."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path

import jsonschema
import pytest
import yaml

from agent.kubernetes.templates.options import pod_options
from agent.kubernetes.templates.template import check_template
from api.jobs.conversions import to_spec
from api.schemas.jobs import JobIn
from scheduler.domain.jobs.spec import DEFAULT_PROJECT
from scheduler.views.job_documents import to_scheduler_form

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*kubernetes*.md"))
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
CHART = ROOT / "helm" / "leasehold"
#: What an object begins with that is for the chart.
OF_THE_CHART = {"scheduler", "agent", "jobs", "database", "monitoring", "networkPolicies"}


def blocks(page):
    return [yaml.safe_load(text) for text in BLOCK.findall(page.read_text())]


def merged(base, over):
    made = deepcopy(base)
    for name, value in over.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, dict) and isinstance(made.get(name), dict):
            made[name] = merged(made[name], value)
        else:
            made[name] = value
    return made


def test_there_are_pages():
    assert {p.stem.partition("-")[0] for p in PAGES} >= {"install", "checkpoints", "teams"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_values_are_such_as_the_chart_takes(page):
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    found = [block for block in blocks(page) if block.keys() <= OF_THE_CHART]
    for block in found:
        jsonschema.validate(merged(defaults, block), schema)
    assert found or page.stem.startswith("checkpoints")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_jobs_are_such_as_the_scheduler_takes(page):
    for block in blocks(page):
        if "apiVersion" in block or block.keys() <= OF_THE_CHART or "mountOptions" in block:
            continue
        job = {"name": "job", "command": ["true"]} | to_scheduler_form(block, where=page.name)
        spec = to_spec(JobIn.model_validate(job), project=DEFAULT_PROJECT, now_s=0.0)
        options = pod_options(spec.kubernetes)
        check_template(options.template, accelerators=frozenset({"nvidia.com/gpu"}))


def test_every_field_of_a_volume_is_in_the_guide():
    page = (ROOT / "docs" / "how-to" / "checkpoints-on-kubernetes.md").read_text()
    for field in ("claim", "path", "read_only", "sub_path"):
        assert f"| `{field}` |" in page
