"""Each field of a job is declared once, and everything that asks for it follows."""

from dataclasses import fields

import pytest

from api.jobs.conversions import to_spec
from api.schemas.jobs import JobIn
from leasehold.cli.jobspec.spec_options import job_of_options
from leasehold.cli.session.wording import option_of
from scheduler.control.facts.specs import spec_from_json, spec_to_json
from scheduler.domain.jobs.fields import Number, Word, Written
from scheduler.domain.jobs.spec import JOB_FIELDS, JobSpec
from scheduler.views.job_documents import SHORT_NAMES, to_scheduler_form

#: Fields of requests that are not in a specification.
BESIDE = ["deadline_in_s", "array", "client_id", "held"]
#: A value of each kind, as a request has it.
SAMPLES = {
    Word.NAME: "a", Word.PROJECT: "p", Word.SUBJECT: "s", Word.JOB_TYPE: "t", Word.IMAGE: "i:1",
    Word.LINE: "some text", Word.PATH: "/x/y", Word.ANY_PATH: "y", Word.EXPRESSION: "step (\\d+)",
    Word.COMMAND: ["train"], Word.VARIABLES: {"K": "v"}, Word.LABELS: {"k": "v"},
    Word.SECRETS: {"S": "v"}, Word.DIGEST: "0a" * 32,
    Word.JOB_IDS: ["j-1"], Word.WORKER_COUNTS: [2, 1], Word.WORKER_TYPES: ["v100"],
    Word.RATES: {"v100": 2.5}, Word.RESTARTS: {"v100:8": 60.0},
    Word.MOMENT: 2e9, Word.PODS: {"shm_bytes": 7},
    Word.MODEL: '{"batch":4,"layers":[{"kept_bytes":8.0,"output_bytes":2.0,"parameters":9.0}]}',
    Word.BATCH: {"initial": 32, "most": 512, "least_per_worker": 2, "most_per_worker": 64},
}  # fmt: skip


#: Fields that another field needs.
TOGETHER = {
    "min_workers": {"max_workers": 8},
    "batch": {"total_steps": 100.0},
    "model": {"total_steps": 100.0},
}


def sample(known):
    if isinstance(known.kind, Number):
        least = known.kind.ge if known.kind.ge is not None else known.kind.gt
        return int(least) + 1 if known.kind.whole else float(least) + 1.0
    return not known.default if known.kind is Word.FLAG else SAMPLES[known.kind]


def stored(known):
    value = sample(known)
    return sorted(value) if known.kind is Word.WORKER_COUNTS else value


def test_every_field_is_asked_of_people_but_the_place_in_an_array():
    assert [f.name for f in fields(JobSpec) if f.name not in {k.attribute for k in JOB_FIELDS}] == [
        "array_index"
    ]
    assert [name for name in JobIn.model_fields if name not in {k.name for k in JOB_FIELDS}] == (
        BESIDE
    )


@pytest.mark.parametrize("known", JOB_FIELDS, ids=lambda known: known.name)
def test_a_field_goes_from_a_request_into_what_is_stored_and_back(known):
    request = {"name": "n", "command": ["c"], known.name: sample(known)}
    request |= TOGETHER.get(known.name, {})
    spec = to_spec(JobIn.model_validate(request), project="p", now_s=0.0)
    data = spec_to_json(spec)
    assert data[known.attribute] == stored(known)
    assert spec_from_json(data) == spec


def test_a_job_of_nothing_but_its_needs_is_the_specification_of_nothing_but_them():
    job = JobIn.model_validate({"name": "n", "command": ["c"]})
    spec = to_spec(job, project="default", now_s=0.0)
    assert spec == JobSpec(name="n", command=("c",))
    assert spec_to_json(spec) == {"name": "n", "command": ["c"]}


#: What stands on the command line for the sample of a kind.
TYPED = {
    Word.LABELS: ["k=v"], Word.VARIABLES: ["K=v"], Word.RATES: ["v100=2.5"],
    Word.RESTARTS: ["v100:8=60"],
    Word.SECRETS: ["S"], Word.WORKER_COUNTS: "2,1", Word.MOMENT: "2033-05-18T03:33:20Z",
}  # fmt: skip


def typed(known):
    if isinstance(known.kind, Number) and known.kind.written is not Written.PLAIN:
        return str(sample(known))
    return True if known.kind is Word.FLAG else TYPED.get(known.kind, sample(known))


@pytest.mark.parametrize("known", [k for k in JOB_FIELDS if k.option], ids=lambda k: k.name)
def test_an_option_gives_the_field_and_is_named_for_it(known):
    key = known.flag.removeprefix("--").replace("-", "_")
    assert job_of_options([], {key: typed(known)}, env={"S": "v"}) == {known.name: stored(known)}
    assert option_of(known.name) == known.flag


def test_only_the_command_the_code_the_batch_and_the_pods_have_no_option():
    assert [known.name for known in JOB_FIELDS if not known.flag] == [
        "command",
        "upload",  # uploaded code gets its hash
        "batch",
        "kubernetes",
    ]


@pytest.mark.parametrize("known", [k for k in JOB_FIELDS if k.short_name], ids=lambda k: k.name)
def test_a_file_may_write_a_field_as_people_do(known):
    assert to_scheduler_form({known.short_name: typed(known)}, where="f") == {
        known.name: sample(known)
    }
    assert SHORT_NAMES[known.name] == (known.short_name,)
