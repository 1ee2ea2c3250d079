"""Placeholders are filled, and nothing else in braces is."""

from types import MappingProxyType

import pytest

from scheduler.domain.jobs.placeholders import filled, needs_array, shareable_folder
from scheduler.domain.jobs.spec import JobSpec


def make(*, index=None, **values) -> JobSpec:
    name = "train" if index is None else f"train[{index}]"
    return JobSpec(**({"name": name, "command": ("x",), "array_index": index} | values))


def test_folders_command_and_variables_are_filled():
    spec = filled(
        make(
            index=3,
            command=("run", "--seed={index}", "{name}-{index}"),
            env=MappingProxyType({"OUT": "/out/{job_id}"}),
            checkpoint_dir="/ckpt/{name}/{index}",
            working_dir="/work/{job_id}",
            progress_file="{index}.txt",
        ),
        job_id="train[3]-abc",
    )
    assert spec.command == ("run", "--seed=3", "train-3")
    assert spec.env["OUT"] == "/out/train[3]-abc"
    assert spec.checkpoint_dir == "/ckpt/train/3"
    assert spec.working_dir == "/work/train[3]-abc"
    assert spec.progress_file == "3.txt"
    assert spec.name == "train[3]"


@pytest.mark.parametrize(("text", "index", "found"), [
    ("awk '{print $1}'", 0, "awk '{print $1}'"),
    ("{} {0} {other} {JOB_ID}", 0, "{} {0} {other} {JOB_ID}"),
    ("f'{{name}}' {{index}}", 0, "f'{name}' {index}"),
    ("{index}", None, "{index}"),  # belongs to no array
    ("{name}{name}", None, "traintrain"),
    ("{{{name}}}", None, "{{name}}"),  # as it stands between braces
])  # fmt: skip
def test_what_is_no_placeholder_stays_as_it_is(text, index, found):
    assert filled(make(index=index, command=(text,)), job_id="j").command == (found,)


def test_a_value_is_not_filled_once_more():
    spec = JobSpec(name="{index}", command=("{name}",), array_index=1)
    assert filled(spec, job_id="j").command == ("{index}",)


@pytest.mark.parametrize(("folder", "known"), [
    (None, None),
    ("/a/{job_id}", None),
    ("/a/{{job_id}}", "/a/{job_id}"),
    ("/a", "/a"),
    ("/a/{index}", "/a/2"),
    ("/a/{name}", "/a/train"),
])  # fmt: skip
def test_a_folder_that_another_job_may_have_is_known_before_the_id_is(folder, known):
    assert shareable_folder(make(index=2, checkpoint_dir=folder)) == known


def test_an_index_in_a_folder_needs_an_array():
    assert needs_array("/a/{index}")
    assert not needs_array("/a/{{index}}/{name}")
