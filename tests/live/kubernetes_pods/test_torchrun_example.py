"""The example that trains with torchrun on two nodes: as submitted, and as pods."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod, build_service
from api.jobs.conversions import to_spec
from api.schemas.jobs import JobIn
from leasehold.cli.reading.spec_files import read_jobs
from scheduler.domain.jobs.spec import DEFAULT_PROJECT

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "kubernetes"


@pytest.fixture(name="spec")
def _spec():
    ((job, _),) = read_jobs(str(FOLDER / "torchrun.yaml"))
    return to_spec(JobIn.model_validate(job), project=DEFAULT_PROJECT, now_s=0.0)


@pytest.fixture(name="leases")
def _leases(spec, make_lease):
    """The lease as the agents of two nodes with eight workers each get it."""
    first = make_lease(
        job_id="ddp-1",
        command=spec.command,
        env=spec.env,
        image=spec.image,
        checkpoint_dir=spec.checkpoint_dir,
        total_steps=int(spec.total_steps),
        grace_s=spec.grace_s,
        kubernetes=spec.kubernetes,
        world_size=spec.scale_factor,
        workers=tuple(range(8)),
        local_ranks=tuple(range(8)),
        gang=(8, 8),
    )
    return (first, replace(first, rank=8, node_rank=1))


def pod_of(lease, node):
    workers = (PodWorker(worker_type="a100-sxm4-80gb"),) * 8
    place = PodPlace(node=node, hostname=node, workers=workers)
    return build_pod(lease, place, secret="s", settings=PodSettings(guard_image="leasehold/agent"))


def variables(pod):
    return {v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]}


def test_each_node_gets_one_pod_that_starts_torchrun_once(leases):
    pods = [pod_of(lease, node) for lease, node in zip(leases, ("n1", "n2"), strict=True)]
    assert [pod["metadata"]["name"] for pod in pods] == ["ddp-1-1-0", "ddp-1-1-8"]
    for pod in pods:
        kubernetes_validate.validate(pod, "1.35", strict=True)
        job = pod["spec"]["containers"][0]
        assert job["command"] == ["torchrun", "/train/train_ddp.py", "--step-s", "0.05"]
        assert job["resources"]["limits"]["nvidia.com/gpu"] == "8"
        assert job["resources"]["requests"]["cpu"] == "16"
        assert {"name": "leasehold-claim-0", "mountPath": "/checkpoints"} in job["volumeMounts"]
        assert pod["spec"]["terminationGracePeriodSeconds"] == 30


def test_torchrun_finds_the_gang_in_its_environment(leases):
    first, second = (variables(pod_of(lease, "n")) for lease in leases)
    told = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "8", "PET_MASTER_PORT": "29500"}
    told |= {"PET_MASTER_ADDR": "ddp-1-1-0.ddp-1-1", "LEASEHOLD_TOTAL_STEPS": "100000"}
    told |= {"LEASEHOLD_CHECKPOINT_DIR": "/checkpoints/ddp", "HOME": "/tmp"}
    for found in (first, second):
        assert told.items() <= found.items()
    assert (first["PET_NODE_RANK"], second["PET_NODE_RANK"]) == ("0", "1")


def test_the_first_pod_is_found_by_the_name_that_all_are_told(leases):
    pod = pod_of(leases[0], "n1")
    service = build_service(leases[0], owner_uid="u", settings=PodSettings())
    name = f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}"
    assert name == variables(pod)["PET_MASTER_ADDR"]
    assert pod["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_the_program_can_be_read_without_pytorch():
    text = (FOLDER / "train_ddp.py").read_text()
    blocked = "import sys; sys.modules['torch'] = None; "
    made = "import runpy; sys.argv = ['train_ddp.py', '--help']; "
    run = f"runpy.run_path({str(FOLDER / 'train_ddp.py')!r}, run_name='__main__')"
    compile(text, "train_ddp.py", "exec")
    done = subprocess.run(
        [sys.executable, "-c", blocked + made + run], check=True, capture_output=True, text=True
    )
    assert "--checkpoint-dir" in done.stdout


def test_the_example_names_the_claim_that_the_guide_makes(spec):
    guide = (ROOT / "docs" / "how-to" / "checkpoints-on-kubernetes.md").read_text()
    claims = {mount["claim"] for mount in spec.kubernetes["volumes"]}
    made = yaml.safe_load(guide.partition("```yaml\n# claim.yaml\n")[2].partition("```")[0])
    assert {made["metadata"]["name"]} == claims
    kubernetes_validate.validate(made, "1.35", strict=True)
