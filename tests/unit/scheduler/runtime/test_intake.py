"""The hash of a submission, and its id."""

from __future__ import annotations

import itertools
from types import MappingProxyType as Frozen
from typing import Any

import pytest

from scheduler.control.facts.specs import spec_to_json
from scheduler.domain.jobs.placeholders import filled
from scheduler.domain.jobs.spec import JobSpec
from scheduler.protocol.bounds import plain_json
from scheduler.runtime.intake import digest_of, new_job_ids

TEXTS = ("a", "", "\0", "\ud800", "NaN", "\\u0000", "\\ud800", "9" * 25, "ä", "😀", "\\\\u0000")


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_only_what_can_be_stored_and_told_has_a_hash(text: str) -> None:
    further: tuple[dict[str, Any], ...] = (
        {},
        {"deadline_s": 5.0},
        {"deadline_s": float("nan")},
        {"total_steps": float("inf")},
        {"secret_env": Frozen({"A": text})},
        {"env": Frozen({text: text})},
        {"labels": Frozen({"k": text})},
        {"command": ("x", text)},
        {"kubernetes": Frozen({"template": {"a": [text]}})},
        {"memory_bytes": 2**63},
        {"memory_bytes": 2**63 - 1},
    )
    found = set()
    for name, given in itertools.product(("job_type", "working_dir"), further):
        fields: dict[str, Any] = {"name": "n", "command": ("c",), name: text} | given
        spec = JobSpec(**fields)
        assert bool(digest_of(spec)) == plain_json(spec_to_json(spec)), fields
        found.add(bool(digest_of(spec)))
    assert False in found


def test_ids_are_the_plain_part_of_the_name_and_eight_letters_that_differ() -> None:
    ids = set(new_job_ids(["Train BERT!"] * 200))
    assert len(ids) == 200
    assert {name[:11] for name in ids} == {"train-bert-"}
    assert {len(name) for name in ids} == {19}
    assert len(set("".join(name[11:] for name in ids))) == 31
    other, job = new_job_ids(["a", "ä"])
    assert (other[:2], job[:4]) == ("a-", "job-")


def test_a_job_without_placeholders_is_filled_as_it_is() -> None:
    spec = JobSpec(name="n", command=("c", "}"), env={"A": "b"})
    assert filled(spec, job_id="j") is spec
    other = JobSpec(name="n", command=("c", "{job_id}"))
    assert filled(other, job_id="j").command == ("c", "j")
