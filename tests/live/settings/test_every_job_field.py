"""A change of any field of a job changes how the job is scheduled or launched, or is refused.

Fields are those of a request to submit a job. ``tests/unit/scheduler/domain/test_fields.py`` shows
that each option of ``leasehold submit`` gives its field.
"""

import asyncio
import base64
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.kubernetes.names import LEASE_JSON
from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod, build_secret
from agent.kubernetes.pods.requests import PodRequests
from api.schemas.jobs import ArrayIn, BatchLimitsIn, ClaimIn, JobIn, KubernetesIn
from leasehold_testing.effects import Entry, check_effect, check_table
from leasehold_testing.file_link import FileLink
from leasehold_testing.local_agent import local_agent
from leasehold_testing.packed_code import packed_code
from leasehold_testing.played import configured, held_back, outcome, played, reported
from scheduler.control.facts.requests import ProjectLimits
from scheduler.domain.jobs.spec import JOB_FIELDS
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol.desired import Desired
from simulator.world.nodes import Mishap

TWO_WORKERS = {"n0": ("v100", "v100")}
TWO_TYPES = {"n0": ("v100",), "n1": ("k80",)}
GPT2 = {
    "config": {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "vocab_size": 50257,
        "n_positions": 1024,
    }
}
PODS = PodSettings(code_image="leasehold/agent:1")
BOTH = {"v100": 1.0, "k80": 1.0}


def launched(job):
    """Return the pod and the Secret that are made of the lease of a job on two workers."""

    async def story(stage):
        await stage.request("PUT", f"/v1/uploads/{DIGEST}", json=CODE)
        await stage.job("job", **{"image": "team/train:1"} | job)
        await stage.wait(2)
        return [pods_of(lease) for lease in await stage.launched()]

    return played(story, configured({"secrets.keys": KEY}), nodes=TWO_WORKERS)


def pods_of(lease):
    """Return the pod and the Secret of a lease; without the annotation that repeats the lease."""
    workers = tuple(PodWorker(worker_type="v100") for _ in lease.workers)
    place = PodPlace(node="n0", hostname="n0", workers=workers)
    lease = replace(lease, nonce="")
    pod = build_pod(lease, place, secret="s", settings=PODS)
    del pod["metadata"]["annotations"][LEASE_JSON]
    return pod, build_secret(lease, secret="s", owner_uid="u", settings=PODS)


def counted(job):
    """Return the steps that an agent counts of a real process under the lease of a job."""
    command = [sys.executable, "-c", "print('at 3'); open('steps', 'w').write('5')"]

    async def story(stage):
        await stage.job("job", **{"command": command} | job)
        await stage.wait(2)
        return await stage.launched()

    ended = []

    async def run(folder, leases):
        over = asyncio.Event()

        class Link(FileLink):
            async def report(self, report):
                ended.extend(one for one in report.leases if one.state is LeasePhase.ENDED)
                if ended:
                    over.set()

        link = Link(folder=folder)
        link.publish(Desired(revision=1, leases=leases))
        agent = local_agent(node="n0", link=link, workers="v100:1", state_dir=folder / "state")
        task = asyncio.create_task(agent.run())
        await asyncio.wait_for(over.wait(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return ended[0].steps_done, ended[0].steps_live

    with tempfile.TemporaryDirectory(prefix="lh-") as folder:
        return asyncio.run(run(Path(folder), played(story)))


def removed(job):
    """Return with what grace a pod is deleted that has survived its deletion for long."""
    asked = []

    class Client:
        async def delete_pod(self, *_name, grace_s, **_more):
            asked.append(grace_s)
            return True

    async def story(stage):
        await stage.job("job", **job)
        await stage.wait(2)
        (lease,) = await stage.launched()
        record = SimpleNamespace(
            lease=lease, pod={}, name="job", uid="u", kill_s=0.0, grace_s=1, deleted_s=0.0
        )
        await requests.end(record)
        return asked

    nothing = dict.fromkeys(("pod_of", "see", "note", "on_change"))
    requests = PodRequests(
        client=Client(), node="n0", settings=PODS, trouble_s=1.0, force_after_s=0.0, **nothing
    )
    return played(story)


def listed(job):
    """Return whether a job is among those of a label."""

    async def story(stage):
        await stage.job("job", **job)
        answer = await stage.request("GET", "/v1/jobs", params={"label": "team=a"})
        return [one["job_id"] for one in answer.json()["jobs"]]

    return played(story)


DIGEST, CODE = packed_code()
KEY = base64.urlsafe_b64encode(bytes(32)).decode()


def scheduled(*others, settings=None, **how):
    """Return an observation: a service's actions with a job and others; see ``outcome``."""
    return lambda job: outcome(configured(settings), job, *others, **how)


def fails(end, code=""):
    """Return how the job ends when it has done ten steps; ``code`` is what its node calls it."""

    def coded(made, _now_s):
        return replace(made, reason_code=code) if made.state is LeasePhase.ENDED else made

    return scheduled(mishaps={"job": [Mishap(steps=10.0, end=end)]}, prepare=reported(coded))


def field(name, first, second, observe, **beside):
    """Return the entry of a field with two values of it; ``beside`` is the rest of the job."""

    def shown(value):
        outer, _, inner = name.partition(".")
        given = {outer: {inner: value} if inner else value}
        return observe(beside | {key: one for key, one in given.items() if one is not None})

    return name, Entry((first, second), shown)


def mount(name, first, second):
    """Return the entry of a field of a volume claim."""
    own = name.rpartition(".")[2]

    def mounted(value):
        return launched(
            {"kubernetes": {"volumes": [{"claim": "data", "path": "/data"} | {own: value}]}}
        )

    return name, Entry((first, second), mounted)


def batch(name, first, second):
    """Return the entry of a limit of the batch, which its processes get."""

    def told(value):
        limits = {"initial": 32, "most": 512, "most_per_worker": 64} | {name: value}
        return launched({"total_steps": 100.0, "batch": limits})

    return f"batch.{name}", Entry((first, second), told)


async def declared(stage):
    """Declare where two job types are fast, that one scales, and that two may share a worker."""
    figures = [("on-v100", 1, "v100", 9.0), ("on-v100", 1, "k80", 1.0)]
    figures += [("on-k80", 1, "v100", 1.0), ("on-k80", 1, "k80", 9.0)]
    figures += [("wide", 1, "v100", 1.0), ("wide", 2, "v100", 2.0)]
    figures += [("a", 1, "v100", 1.0), ("b", 1, "v100", 1.0)]
    pairs = [(("a", 1), ("b", 1), "v100", (0.9, 0.9))]
    await stage.do(stage.service.declare_throughputs(figures, pairs=pairs, actor="boss"))


async def one_before(stage):
    """Let a job run for twenty seconds where jobs are fast."""
    await stage.job("before", total_steps=20.0, worker_types=["v100"])


def again(job):
    """Return the jobs after the same one was submitted twice, the second time under an id."""

    async def story(stage):
        await stage.job("job", client_id="mine")
        await stage.job("job", **job)
        return stage.told("job_submitted")

    return played(story)


async def small_project(stage):
    """Let a project have one worker."""
    limits = ProjectLimits(project="small", max_workers=1)
    await stage.do(stage.service.set_project(limits, actor="boss"))


OTHER = {"total_steps": 100.0}
PACKED = {"policy.space_sharing": "yes"}
SHARED = scheduled({"job_type": "b", "throughputs": {}}, prepare=declared, settings=PACKED)
ON_TIME = scheduled(OTHER, settings={"policy.name": "min_cost"})
SHORTEST = scheduled(OTHER, settings={"policy.name": "shortest_job_first"})
WEIGHTS = {"policy.name": "hierarchical", "policy.parameters.entity_weights": "a:9"}
BY_TEAM = scheduled(OTHER, settings=WEIGHTS)
HELD = {"then": held_back, "leave_s": math.inf, "settings": {"engine.plan_lead_s": "10"}}
IN_PROJECT = scheduled({"project": "small"}, nodes=TWO_WORKERS, prepare=small_project)
WIDE = {"job_type": "wide", "throughputs": {}}
FASTER = {"total_steps": 200.0, "throughputs": {"v100": 3.0, "k80": 1.0}}
ENTRIES = dict(
    [
        field("name", "one", "two", launched, checkpoint_dir="/ckpt/{name}"),
        field("project", "default", "small", IN_PROJECT),
        field("command", ["train"], ["train", "--fast"], launched),
        field("env", {"A": "1"}, {"A": "2"}, launched),
        field("secret_env", {"A": "1"}, {"A": "2"}, launched),
        field("working_dir", "/one", "/two", launched),
        field("upload", None, DIGEST, launched),
        field("image", "team/train:1", "team/train:2", launched),
        field("scale_factor", 1, 2, scheduled(nodes=TWO_WORKERS)),
        field(
            "min_workers",
            1,
            2,
            scheduled(OTHER, nodes=TWO_WORKERS, prepare=declared),
            max_workers=2,
            **WIDE,
        ),
        field("max_workers", 1, 2, scheduled(nodes=TWO_WORKERS, prepare=declared), **WIDE),
        field("worker_types", ["v100"], ["k80"], scheduled(nodes=TWO_TYPES), throughputs=BOTH),
        field("total_steps", 100.0, 50.0, scheduled()),
        field("duration_s", 50.0, 500.0, SHORTEST, total_steps=None),
        field(
            "job_type",
            "on-v100",
            "on-k80",
            scheduled(nodes=TWO_TYPES, prepare=declared),
            throughputs={},
        ),
        field(
            "throughputs",
            {"v100": 9.0, "k80": 1.0},
            {"v100": 1.0, "k80": 9.0},
            scheduled(nodes=TWO_TYPES),
        ),
        # Two workers share the matrices, or the samples.
        field(
            "model",
            GPT2 | {"batch": 1},
            GPT2 | {"batch": 8},
            launched,
            scale_factor=2,
            throughputs={},
        ),
        field("weight", 1.0, 9.0, scheduled(OTHER)),
        field("deadline_s", None, 115.0, ON_TIME),
        field("deadline_in_s", None, 115.0, ON_TIME),
        field("max_run_time_s", 20.0, 60.0, scheduled()),
        field("preemptible", True, False, scheduled(OTHER)),
        field("min_run_time_s", 0.0, 90.0, scheduled(OTHER)),
        field("max_failures", 0, 1, fails(EndReason.FAILED)),
        field("retry_oom", False, True, fails(EndReason.OOM)),
        field("max_out_of_memory", 0, 1, fails(EndReason.OOM)),
        field("max_node_faults", 0, 1, fails(EndReason.LOST)),
        field("max_image_failures", 0, 1, fails(EndReason.LOST, "ErrImagePull")),
        field("max_preemptions", 0, 9, scheduled(OTHER)),
        field("checkpoint_dir", "/one", "/two", launched),
        field("labels", {"team": "a"}, {"team": "b"}, listed),
        field("entity", "a", "b", BY_TEAM),
        field("depends_on", [], ["before"], scheduled(nodes=TWO_WORKERS, prepare=one_before)),
        field("array.count", 1, 2, scheduled(), checkpoint_dir="/ckpt/{job_id}"),
        field("notice_s", 1.0, 2.0, scheduled(**HELD)),
        field("grace_s", 1.0, 2.0, scheduled(**HELD, term_s=math.inf)),
        field("restart_s", 0.0, 600.0, scheduled(nodes=TWO_TYPES, prepare=one_before), **FASTER),
        field(
            "restarts",
            {},
            {"v100:1": 600.0},
            scheduled(nodes=TWO_TYPES, prepare=one_before),
            **FASTER,
        ),
        field("progress_regex", None, "at ([0-9]+)", counted, total_steps=None),
        field("progress_file", None, "steps", counted, total_steps=None),
        field("memory_bytes", 2**30, 2**31, launched),
        field("cpus", 1.0, 2.0, launched),
        batch("initial", 32, 64),
        batch("most", 256, 512),
        batch("least_per_worker", 1, 2),
        batch("most_per_worker", 64, 128),
        field("space_sharing", True, False, SHARED, job_type="a", throughputs={}),
        field(
            "mixed_gangs",
            False,
            True,
            scheduled(nodes=TWO_TYPES),
            scale_factor=[1, 2],
            throughputs=BOTH,
        ),
        field("client_id", "mine", "new", again),
        field("held", False, True, scheduled()),
        field("kubernetes.requests", {"cpu": "1"}, {"cpu": "2"}, launched),
        field("kubernetes.volumes", [], [{"claim": "data", "path": "/data"}], launched),
        mount("kubernetes.volumes.claim", "data", "more"),
        mount("kubernetes.volumes.path", "/data", "/more"),
        mount("kubernetes.volumes.read_only", False, True),
        mount("kubernetes.volumes.sub_path", "", "a"),
        field("kubernetes.tolerations", [], [{"key": "spot", "operator": "Exists"}], launched),
        field("kubernetes.service_account", "", "trainer", launched),
        field("kubernetes.image_pull_secrets", [], ["registry"], launched),
        field("kubernetes.image_pull_policy", "Always", "Never", launched),
        field("kubernetes.runtime_class", "", "nvidia", launched),
        field("kubernetes.shm_bytes", 2**20, 2**21, launched),
        field("kubernetes.launch", "per-worker", "per-node", launched, scale_factor=2),
        field("kubernetes.force_delete", False, True, removed),
        field("kubernetes.template", {}, {"metadata": {"labels": {"team": "a"}}}, launched),
    ]
)


def fields_of_a_job():
    """Yield every field that a request to submit a job may have, with those inside of it."""
    for name in JobIn.model_fields:
        if name not in {"batch", "kubernetes", "array"}:
            yield name
    yield from (f"batch.{name}" for name in BatchLimitsIn.model_fields)
    yield from (f"array.{name}" for name in ArrayIn.model_fields)
    yield from (f"kubernetes.{name}" for name in KubernetesIn.model_fields)
    yield from (f"kubernetes.volumes.{name}" for name in ClaimIn.model_fields)


def test_every_field_has_an_entry():
    assert {known.name for known in JOB_FIELDS} <= set(JobIn.model_fields)
    check_table(ENTRIES, fields_of_a_job())


@pytest.mark.parametrize("name", ENTRIES)
def test_a_field_changes_what_is_done_with_the_job(name):
    check_effect(name, ENTRIES[name])
