"""Pods as they are sent: golden files, names, templates. Rewrite with LEASEHOLD_GOLDEN=write."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.kubernetes.names import (
    LEASE_JSON,
    label_value,
    lease_annotations,
    pod_name,
    service_name,
)
from agent.kubernetes.node.image_pulls import build_pull_pod
from agent.kubernetes.pods.launch import LAUNCHER, kubelet_literal, launch_command
from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod, build_service
from agent.kubernetes.templates.template import check_template, merge_template
from leasehold_testing.transcript import check_golden
from scheduler.errors import InputError
from scheduler.protocol.desired import DesiredImage, lease_from_dict, to_dict

GOLDEN = Path(__file__).parent / "golden"
V100 = PodWorker(worker_type="v100")
MIG = PodWorker(worker_type="a100-mig-1g.10gb", resource="nvidia.com/mig-1g.10gb")
MI300 = PodWorker(worker_type="mi300x", resource="amd.com/gpu")
CPU = PodWorker(worker_type="cpu", resource="")
SEEN = PodWorker(worker_type="t4", sharing="visible", device="3")
TEMPLATE = {
    "metadata": {"labels": {"team": "vision"}},
    "spec": {
        "priorityClassName": "low",
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "volumes": [{"name": "data", "hostPath": {"path": "/data"}}],
        "containers": [
            {
                "name": "job",
                "env": [{"name": "HF_HOME", "value": "/data/hf"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "exporter", "image": "team/exporter:2"},
        ],
    },
}
EVERYTHING = {
    "requests": {"cpu": "6", "memory": "20Gi"},
    "volumes": [
        {"claim": "checkpoints", "path": "/ckpt", "sub_path": "job1"},
        {"claim": "datasets", "path": "/datasets", "read_only": True},
    ],
    "tolerations": [{"key": "team", "value": "vision", "operator": "Equal"}],
    "service_account": "trainer",
    "image_pull_secrets": ["registry"],
    "image_pull_policy": "IfNotPresent",
    "shm_bytes": 2**30,
    "launch": "per-node",
}
CASES = {
    "one_gpu": ({}, (V100,), {}),
    "cpu_only": ({}, (CPU,), {}),
    "mig": ({}, (MIG,), {}),
    "amd": ({}, (MI300, MI300), {"workers": (0, 1), "world_size": 2, "local_ranks": (0, 1)}),
    "shared_by_runtime_class": ({}, (SEEN,), {}),
    "guarded": ({"guard_image": "leasehold/agent:1"}, (V100,), {}),
    "with_code": (
        {"guard_image": "leasehold/agent:1", "code_image": "leasehold/agent:1"},
        (V100,),
        {"upload": "0123456789abcdef" * 4, "working_dir": "/nonexistent"},
    ),
    "template": ({}, (V100,), {"kubernetes": {"template": TEMPLATE}}),
    "everything_with_torchrun_on_two_nodes": (
        {},
        (V100, V100),
        {
            "kubernetes": EVERYTHING,
            "workers": (0, 1),
            "rank": 2,
            "world_size": 4,
            "local_ranks": (0, 1),
            "gang": (2, 2),
            "node_rank": 1,
            "memory_bytes": 32 * 2**30,
            "cpus": 7.5,
            "checkpoint_dir": "/ckpt",
            "working_dir": "/workspace",
            "total_steps": 1000,
            "env": {"BATCH": "64"},
        },
    ),
}


def build(make_lease, case):
    given_settings, workers, more = CASES[case]
    return build_pod(
        make_lease(**more),
        PodPlace(node="n1", hostname="n1", workers=workers, deadline_s=1234.5),
        secret="s3cret",
        settings=PodSettings(**given_settings),
    )


def lines(value):
    return yaml.safe_dump(value, sort_keys=False, width=100).splitlines()


@pytest.mark.parametrize("case", CASES)
def test_pods_are_what_the_golden_files_show(make_lease, case):
    check_golden(GOLDEN / f"{case}.yaml", lines(build(make_lease, case)))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_everything_that_is_sent_is_as_kubernetes_schemas_ask(path):
    kubernetes_validate.validate(yaml.safe_load(path.read_text()), "1.35", strict=True)


def test_a_pod_has_the_secrets_of_its_job_and_those_of_all_pods(make_lease):
    lease = make_lease(kubernetes={"image_pull_secrets": ["own", "all"]})
    place = PodPlace(node="n1", hostname="n1", workers=(V100,), deadline_s=1234.5)
    settings = PodSettings(image_pull_secrets=("all", "more"))
    pod = build_pod(lease, place, secret="s3cret", settings=settings)
    assert pod["spec"]["imagePullSecrets"] == [{"name": n} for n in ("own", "all", "more")]
    pull = build_pull_pod(DesiredImage(name="x"), node="n1", hostname="n1", settings=settings)
    assert pull["spec"]["imagePullSecrets"] == [{"name": n} for n in ("all", "more")]


def test_the_service_of_a_gang_is_what_the_golden_file_shows(make_lease):
    lease = make_lease(gang=(2, 2), world_size=4, workers=(0, 1), local_ranks=(0, 1))
    service = build_service(lease, owner_uid="u1", settings=PodSettings())
    check_golden(GOLDEN / "service.yaml", lines(service))
    assert build_service(make_lease(), owner_uid="u1", settings=PodSettings()) is None


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_restricted_unless_its_template_says_otherwise(make_lease, case):
    spec = build(make_lease, case)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    job = spec["containers"][0]
    assert job["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["terminationGracePeriodSeconds"] >= 1
    assert "nodeName" not in spec


def test_a_lease_survives_the_way_to_the_agent_and_the_annotation(make_lease):
    lease = make_lease(gang=(1, 1), world_size=2, kubernetes={"launch": "per-node"})
    assert lease_from_dict(to_dict(lease)) == lease


def test_the_annotation_is_a_lease_for_this_release_and_the_one_before(make_lease):
    """The one before wants a command that names a program, too."""
    lease = make_lease(command=("python", "x" * 10**6), plan="é")
    told = lease_from_dict(json.loads(lease_annotations(lease)[LEASE_JSON]))
    assert replace(told, command=lease.command) == lease
    assert told.command[0]


@given(
    job=st.text(min_size=1, max_size=100), attempt=st.integers(1, 10**9), rank=st.integers(0, 512)
)
def test_names_fit_dns_and_labels_whatever_the_job_is_called(job, attempt, rank):
    for name in (pod_name(job, attempt, rank), service_name(job, attempt)):
        assert len(name) <= 63
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(label_value(job)) <= 63
    assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", label_value(job))


@given(first=st.text(min_size=1, max_size=80), second=st.text(min_size=1, max_size=80))
def test_jobs_of_different_ids_have_pods_of_different_names(first, second):
    assert (pod_name(first, 1, 0) == pod_name(second, 1, 0)) == (first == second)
    assert pod_name(first, 1, 11) != pod_name(first, 11, 1)


JSON = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)


@given(
    base=st.dictionaries(st.sampled_from("abc"), JSON),
    over=st.dictionaries(st.sampled_from("abc"), JSON),
)
def test_merging_twice_is_merging_once_and_nothing_of_the_template_is_lost(base, over):
    once = merge_template(base, over)
    assert merge_template(once, over) == once
    assert merge_template(base, {}) == base
    for name, value in over.items():
        if not isinstance(value, dict):
            assert once[name] == value


def test_lists_are_merged_by_name_and_tolerations_are_added():
    base = {"env": [{"name": "A", "value": "1"}], "tolerations": [{"key": "x"}], "args": [1]}
    over = {
        "env": [{"name": "A", "value": "2"}, {"name": "B"}],
        "tolerations": [{"key": "y"}],
        "args": [2],
    }
    assert merge_template(base, over) == {
        "env": [{"name": "A", "value": "2"}, {"name": "B"}],
        "tolerations": [{"key": "x"}, {"key": "y"}],
        "args": [2],
    }
    assert base["env"] == [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"metadata": {"name": "mine"}}, "metadata.name"),
        (
            {"metadata": {"labels": {"leasehold.dev/lease": "1"}}},
            "metadata.labels.leasehold.dev/lease",
        ),
        ({"metadata": {"finalizers": ["x"]}}, "metadata.finalizers"),
        ({"spec": {"nodeName": "n2"}}, "spec.nodeName"),
        (
            {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}},
            "spec.nodeSelector.kubernetes.io/hostname",
        ),
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
        ({"spec": {"terminationGracePeriodSeconds": 0}}, "spec.terminationGracePeriodSeconds"),
        ({"spec": {"serviceAccountName": "root"}}, "spec.serviceAccountName"),
        ({"spec": {"containers": [{"name": "job", "image": "x"}]}}, "spec.containers[0].image"),
        (
            {"spec": {"containers": [{"name": "job", "env": [{"name": "RANK"}]}]}},
            "spec.containers[0].env[0].name",
        ),
        (
            {"spec": {"containers": [
                {"name": "s", "resources": {"limits": {"nvidia.com/gpu": 1}}}
            ]}},
            "spec.containers[0].resources.limits.nvidia.com/gpu",
        ),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0].name"),
        ({"spec": {"volumes": [{"name": "leasehold-shm"}]}}, "spec.volumes[0].name"),
        ({"kind": "Job"}, "kind"),
        ({"spec": []}, "spec"),
    ],
)  # fmt: skip
def test_a_template_that_sets_what_is_the_schedulers_is_refused_by_name_and_value(template, field):
    with pytest.raises(InputError, match=re.escape(f"'kubernetes.template.{field}' is ")):
        check_template(template, accelerators=frozenset({"nvidia.com/gpu"}))


def test_node_selectors_of_the_template_join_the_pin(make_lease):
    template = {"spec": {"nodeSelector": {"zone": "a"}, "containers": None}}
    lease = make_lease(kubernetes={"template": template})
    pod = build_pod(
        lease,
        PodPlace(node="n1", hostname="n1", workers=(V100,)),
        secret="s",
        settings=PodSettings(),
    )
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n1", "zone": "a"}
    assert pod["spec"]["containers"][0]["name"] == "job"


def test_a_file_for_progress_that_nobody_could_read_is_refused(make_lease):
    place = PodPlace(node="n1", hostname="n1", workers=(V100,))
    with pytest.raises(InputError, match=r"'progress_file' is 'steps'.*progress_regex"):
        build_pod(make_lease(progress_file="steps"), place, secret="s", settings=PodSettings())


def test_a_job_without_an_image_is_told_so(make_lease):
    with pytest.raises(InputError, match="names no image"):
        build_pod(
            make_lease(image=""),
            PodPlace(node="n1", hostname="n1", workers=(V100,)),
            secret="s",
            settings=PodSettings(),
        )


@pytest.mark.parametrize("word", ["$(HOME)", "$$", "a$b", "$$(X) $(Y)", "plain"])
def test_the_kubelet_gives_every_word_back_as_it_was(word):
    """Kubernetes' expansion: ``$$`` is a dollar, ``$(NAME)`` a variable, other dollars stay."""
    expanded = re.sub(
        r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else "EXPANDED", kubelet_literal(word)
    )
    assert expanded == word


def launch(tmp_path, program, count=3):
    script = LAUNCHER.replace("/dev/shm", str(tmp_path))
    env = os.environ | {"RANK": "4", "LOCAL_WORLD_SIZE": str(count), "LOCAL_RANK": "0"}
    command = ["/bin/sh", "-c", script, "leasehold", "/bin/sh", "-c", program]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def test_the_launcher_starts_a_process_for_each_worker_with_its_ranks(tmp_path):
    process = launch(tmp_path, 'echo "$RANK $LOCAL_RANK"')
    assert sorted(process.communicate(timeout=10)[0].split("\n"))[1:] == ["4 0", "5 1", "6 2"]
    assert process.returncode == 0


def test_the_launcher_ends_the_others_when_one_fails_and_passes_its_code_on(tmp_path):
    process = launch(tmp_path, 'if [ "$LOCAL_RANK" = 1 ]; then exit 3; fi; exec sleep 30')
    process.communicate(timeout=10)
    assert process.returncode == 3


def test_the_launcher_hands_sigterm_to_all_and_says_that_they_left_early(tmp_path):
    program = 'trap "exit 75" TERM; echo up; while :; do sleep 0.1; done'
    process = launch(tmp_path, program)
    for _ in range(3):
        assert process.stdout.readline() == "up\n"
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 75


def test_one_worker_or_a_launcher_of_its_own_needs_no_shell(make_lease):
    assert launch_command(make_lease(), "per-worker") == ["python", "train.py"]
    many = make_lease(workers=(0, 1), world_size=2, local_ranks=(0, 1))
    assert launch_command(many, "per-node") == ["python", "train.py"]
    assert launch_command(many, "per-worker")[0] == "/bin/sh"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"colour": "red"}, r"'kubernetes.colour' is unknown; there are force_delete, image_pull"),
        ({"volumes": [{"claim": "c", "path": "data"}]}, r"path' is 'data'.*an absolute path"),
        ({"image_pull_policy": "Sometimes"}, r"image_pull_policy' is 'Sometimes'.*one of Always"),
        ({"launch": "twice"}, r"launch' is 'twice'.*one of per-node, per-worker"),
        ({"template": "pod"}, r"template' is 'pod'.*an object"),
        ({"requests": {"nvidia.com/gpu": "2"}}, r"requests.nvidia.com/gpu' is '2'.*scale_factor"),
    ],
)
def test_words_about_pods_that_cannot_be_used_are_refused_by_name_and_value(
    make_lease, words, said
):
    place = PodPlace(node="n1", hostname="n1", workers=(V100,))
    with pytest.raises(InputError, match=said):
        build_pod(make_lease(kubernetes=words), place, secret="s", settings=PodSettings())


def test_a_pod_is_told_the_plan_of_its_lease_and_nothing_where_there_is_none(make_lease):
    for plan, told in (("tensor=2", ["tensor=2"]), ("", [])):
        place = PodPlace(node="n1", hostname="n1", workers=(V100,))
        pod = build_pod(make_lease(plan=plan), place, secret="s", settings=PodSettings())
        environment = pod["spec"]["containers"][0]["env"]
        assert [v["value"] for v in environment if v["name"] == "LEASEHOLD_PLAN"] == told


def test_a_pod_says_whose_it_is(make_lease):
    place = PodPlace(node="n1", hostname="n1", workers=(V100,))
    lease = make_lease(project="vision", owner="ada@example.org")
    labels = build_pod(lease, place, secret="s", settings=PodSettings())["metadata"]["labels"]
    assert labels["leasehold.dev/project"] == "vision"
    assert labels["leasehold.dev/owner"].startswith("ada-example.org-")  # as a label may be written
