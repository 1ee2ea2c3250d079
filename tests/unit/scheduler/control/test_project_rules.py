"""Limits on fields of a project's jobs."""

import pytest

from scheduler.control.facts.requests import ProjectLimits
from scheduler.control.projects.rules import (
    broken_rule,
    limits_from_json,
    limits_to_json,
    too_heavy_for,
)
from scheduler.domain.jobs.spec import JobSpec

LIMITS = ProjectLimits(
    project="vision", entities=("nlp",), job_types=("resnet*", "bert"), max_job_weight=2.0
)


def job(**fields):
    return JobSpec(**{"name": "train", "command": ("x",), "project": "vision"} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"entity": "vision"},
        {"entity": "nlp"},
        {"job_type": "resnet50"},
        {"job_type": "bert"},
        {"job_type": "vision/anything"},
        {"weight": 2.0},
    ],
)
def test_what_is_the_projects_own_or_allowed_is_taken(fields):
    spec = job(**fields)
    assert broken_rule(LIMITS, spec, spec.weight) == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"entity": "ads"}, ("entity is 'ads'", "vision, nlp", "--entities")),
        ({"job_type": "bert2"}, ("job_type is 'bert2'", "vision/*, resnet*, bert", "--job-types")),
        ({"job_type": "ads/train"}, ("job_type is 'ads/train'",)),
        ({"job_type": "vision"}, ("job_type is 'vision'",)),
        ({"weight": 2.5}, ("weight is 2.5", "at most 2", "--max-job-weight")),
    ],
)
def test_what_goes_beyond_is_told_with_field_value_and_who_can_change_it(fields, words):
    spec = job(**fields)
    told = broken_rule(LIMITS, spec, spec.weight)
    assert all(word in told for word in words)
    assert "ask an operator" in told
    assert "leasehold project set vision" in told


def test_without_rules_everything_is_taken_as_before():
    spec = job(entity="ads", job_type="ads/train", weight=1000.0)
    assert broken_rule(None, spec, spec.weight) == ""
    assert broken_rule(ProjectLimits(project="vision", max_jobs=3), spec, spec.weight) == ""
    assert too_heavy_for(None, 1e6) == ""


def test_no_further_names_leave_the_project_its_own():
    alone = ProjectLimits(project="vision", entities=(), job_types=())
    assert broken_rule(alone, job(), 1.0) == ""
    assert "may have vision;" in broken_rule(alone, job(entity="nlp"), 1.0)


@pytest.mark.parametrize("limits", [LIMITS, ProjectLimits(project="p", max_workers=3)])
def test_limits_come_back_as_they_were_stored(limits):
    assert limits_from_json(limits_to_json(limits)) == limits


def test_limits_are_stored_as_before_where_no_rule_is_set():
    stored = limits_to_json(ProjectLimits(project="p", max_jobs=3))
    assert stored == {
        "project": "p",
        "weight": 1.0,
        "inner_policy": "fairness",
        "max_workers": None,
        "max_jobs": 3,
    }
    assert limits_from_json(stored | {"of_a_newer_release": 1}).max_jobs == 3
