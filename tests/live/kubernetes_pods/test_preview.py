"""A dry run's view of a job's pods, and its refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from api.jobs.pod_preview import pod_preview
from api.problems import ProblemError
from scheduler.control.facts.specs import spec_from_json, spec_to_json
from scheduler.domain.jobs.spec import JobSpec

SPEC = JobSpec(name="train", command=("python", "a.py"), image="team/train:1", scale_factors=(2,))


def test_a_job_with_an_image_shows_its_pod_and_one_without_shows_none():
    pod = pod_preview(SPEC, worker_type="v100")
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "NODE"}
    assert pod_preview(replace(SPEC, image="")) is None


def test_the_pod_has_the_limits_of_a_batch_that_may_change():
    batch = {"initial": 64, "most": 512, "least_per_worker": 1, "most_per_worker": 64}
    variables = pod_preview(replace(SPEC, batch=batch))["spec"]["containers"][0]["env"]
    (told,) = (one["value"] for one in variables if one["name"] == "LEASEHOLD_BATCH")
    assert json.loads(told) == batch


def test_a_template_that_cannot_be_used_is_a_problem_of_its_field():
    spec = replace(SPEC, kubernetes={"template": {"spec": {"nodeName": "n1"}}})
    with pytest.raises(ProblemError) as caught:
        pod_preview(spec)
    (problem,) = caught.value.errors
    assert problem.field == "kubernetes.template.spec.nodeName"
    assert "'n1'" in problem.problem


def test_what_a_job_says_about_its_pods_survives_storage():
    spec = replace(SPEC, kubernetes={"launch": "per-node", "template": {"spec": {"x": [1]}}})
    assert spec_from_json(spec_to_json(spec)) == spec


def test_a_file_for_progress_is_a_problem_of_its_field():
    with pytest.raises(ProblemError) as caught:
        pod_preview(replace(SPEC, progress_file="steps"))
    (problem,) = caught.value.errors
    assert problem.field == "progress_file"
    assert "progress_regex" in problem.problem
