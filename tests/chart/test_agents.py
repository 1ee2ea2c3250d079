"""The values of the chart about agents: each has its effect."""

from __future__ import annotations

import json
import os
import subprocess
import time
import tomllib

import pytest
from chart_rendering import CHART, configuration, environment, mounts, render, volumes

from agent.kubernetes.pods.figures import CODE, GUARD, resources_of
from leasehold.cli.lazy import load
from leasehold.cli.main import COMMANDS
from leasehold.config.agent_settings import FIGURE, AgentConfig
from leasehold.config.fields import describe
from leasehold.config.load import load_agent_config
from leasehold.daemon.agent import HEARTBEAT

CODE_BYTES = "LEASEHOLD_AGENT__KUBERNETES__CODE_VOLUME_BYTES"
POSTGRESQL = {"database__type": "postgresql", "database__postgresql__existingSecret": "db"}


def test_each_group_of_nodes_has_agents_and_a_group_wins_over_the_rest(everything):
    gpu, amd = everything.one("DaemonSet", "-agent-gpu"), everything.one("DaemonSet", "-agent-amd")
    assert gpu["spec"]["selector"] != amd["spec"]["selector"]
    pods = [item["spec"]["template"]["spec"] for item in (gpu, amd)]
    assert [next(iter(pod["nodeSelector"])) for pod in pods] == [
        "nvidia.com/gpu.present",
        "amd.com/gpu.present",
    ]
    assert [pod["tolerations"][0].get("key") for pod in pods] == [None, "amd.com/gpu"]
    args = [pod["containers"][0]["args"] for pod in pods]
    assert "--log-level=warning" in args[0]
    assert "--log-level=debug" in args[1]
    assert "--worker-name=AMD-Instinct-MI300X=mi300x" in args[1]
    assert "--worker-name=NVIDIA-A100-SXM4-80GB=a100-80g" in args[1]
    assert "limits" not in pods[1]["containers"][0]["resources"], "replaced as a whole"


def test_a_group_can_be_taken_out():
    assert "DaemonSet" not in render(agent__groups__gpu=None).kinds


def test_an_agent_knows_its_node_its_scheduler_and_where_jobs_run(minimal):
    container = minimal.container("DaemonSet")
    assert "--node=$(NODE_NAME)" in container["args"]
    assert "--backend=kubernetes" in container["args"]
    given = environment(container)
    assert given["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert given["LEASEHOLD_JOB_NAMESPACE"]["value"] == "leasehold-jobs"
    tolerated = minimal.pod("DaemonSet")["tolerations"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in tolerated


def test_pods_of_jobs_reach_the_agent_of_their_own_node(everything):
    service = everything.one("Service", "-agent")["spec"]
    assert service["internalTrafficPolicy"] == "Local"
    for item in everything.all("DaemonSet"):
        assert service["selector"].items() <= item["spec"]["template"]["metadata"]["labels"].items()
        ports = item["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert ports == [{"name": "jobs", "containerPort": 9643, "protocol": "TCP"}]
    assert service["ports"][0]["port"] == 9643


def test_an_agent_is_told_how_jobs_run_on_its_nodes(everything, minimal):
    gpu, amd = (everything.container("DaemonSet", name) for name in ("-gpu", "-amd"))
    assert {
        "--worker-sharing=t4=time-slicing",
        "--default-image=registry.example/train:1",
        "--runtime-class=nvidia-cdi",
        "--jobs-port=9643",
    } <= set(gpu["args"])
    assert "--worker-sharing=mi300x=visible" in amd["args"]
    assert "--toleration=amd.com/gpu:NoSchedule" in amd["args"]
    assert not any("--toleration" in one for one in gpu["args"]), "it has no key"
    assert environment(gpu)["LEASEHOLD_GUARD_IMAGE"]["value"] == "registry.example/guard:1"
    assert "LEASEHOLD_GUARD_IMAGE" not in environment(amd)
    plain = minimal.container("DaemonSet")
    assert environment(plain)["LEASEHOLD_GUARD_IMAGE"]["value"] == plain["image"]
    assert environment(gpu)["LEASEHOLD_CODE_IMAGE"]["value"] == "registry.example/code:1"
    assert environment(gpu)[CODE_BYTES]["value"] == "67108864"
    assert "LEASEHOLD_CODE_IMAGE" not in environment(amd)
    assert environment(plain)["LEASEHOLD_CODE_IMAGE"]["value"] == plain["image"]
    assert environment(plain)[CODE_BYTES]["value"] == "1073741824"
    assert environment(plain)["LEASEHOLD_JOBS_HOST"]["value"] == "lh-leasehold-agent.gpus.svc"
    assert environment(plain)["LEASEHOLD_INSTANCE"]["value"] == "gpus.lh-leasehold"
    taint = [{"key": "pool", "value": "a", "effect": "NoExecute"}]
    other = render(agent__tolerations=taint).container("DaemonSet")
    assert "--toleration=pool=a:NoExecute" in other["args"]


def test_the_program_knows_every_option_that_the_chart_gives_it(everything, minimal):
    for name, rendered in (
        ("agent", [everything.container("DaemonSet", "-gpu"), minimal.container("DaemonSet")]),
        ("serve", [everything.container(), minimal.container()]),
    ):
        command = load(name, COMMANDS[name])
        known = {option for parameter in command.params for option in parameter.opts}
        variables = {parameter.envvar for parameter in command.params} - {None}
        for container in rendered:
            given = {one.partition("=")[0] for one in container["args"] if one.startswith("--")}
            assert given <= known
            if name == "agent":
                names = {n for n in environment(container) if n.startswith("LEASEHOLD_")}
                settings = tuple(describe(AgentConfig).values())
                known_names = {name for setting in settings for name in setting.variables}
                known_names |= {setting.variable for setting in settings}
                assert names <= variables | known_names


def test_the_agent_reads_the_figures_of_its_containers_as_the_chart_writes_them(
    minimal, everything
):
    def told(rendered, suffix=""):
        given = environment(rendered.container("DaemonSet", suffix))
        names = {"GUARD": GUARD, "CODE": CODE}
        found = {}
        for name, otherwise in names.items():
            texts = given[f"LEASEHOLD_AGENT__KUBERNETES__{name}_RESOURCES"]["value"].split(",")
            assert all(FIGURE.fullmatch(text) for text in texts), texts
            found[name] = resources_of(otherwise | dict(text.split("=") for text in texts))
        return found

    assert told(minimal) == {"GUARD": resources_of(GUARD), "CODE": resources_of(CODE)}
    assert told(everything, "-gpu") == {
        "GUARD": {
            "requests": {"cpu": "0.01", "memory": "128Mi"},
            "limits": {"cpu": "250m", "memory": "128Mi"},
        },
        "CODE": {
            "requests": {"cpu": "6m", "memory": "33Mi"},
            "limits": {"cpu": "2", "memory": "300Mi"},
        },
    }


def test_every_job_gets_the_secrets_of_the_values(everything, minimal):
    name = "LEASEHOLD_AGENT__KUBERNETES__IMAGE_PULL_SECRETS"
    given = environment(everything.container("DaemonSet", "-gpu"))
    config = load_agent_config(environment={name: given[name]["value"]}).config
    assert config.kubernetes.image_pull_secrets == ("team-registry", "registry")
    assert name not in environment(minimal.container("DaemonSet"))


@pytest.mark.parametrize("age_s", [None, 5.0, 100.0])
def test_what_stands_still_for_a_minute_is_started_again(minimal, tmp_path, age_s):
    agent, counter = minimal.container("DaemonSet"), minimal.container("Deployment", "-foreign")
    files = (
        (agent, f"{mounts(agent)['state']}/{HEARTBEAT}"),
        (counter, environment(counter)["LEASEHOLD_HEARTBEAT"]["value"]),
    )
    beat = tmp_path / "beat"
    if age_s is not None:
        beat.touch()
        os.utime(beat, (time.time() - age_s,) * 2)
    for container, file in files:
        *shell, script = container["livenessProbe"]["exec"]["command"]
        assert file in script
        ended = subprocess.run([*shell, script.replace(file, str(beat))], check=False)
        assert (ended.returncode == 0) is (age_s != 100.0)


def test_agents_enrol_by_the_tokens_of_their_pods(minimal):
    pod, container = minimal.pod("DaemonSet"), minimal.container("DaemonSet")
    (source,) = volumes(pod)["identity"]["projected"]["sources"]
    parsed = tomllib.loads(configuration(minimal))["kubernetes"]
    assert source["serviceAccountToken"]["audience"] == parsed["audience"]
    assert parsed["agent_account"] == f"gpus/{pod['serviceAccountName']}"
    assert "--enrol-file=/var/run/secrets/leasehold/token" in container["args"]
    assert mounts(container)["identity"] == "/var/run/secrets/leasehold"
    assert minimal.pod()["automountServiceAccountToken"], "the scheduler asks for reviews"


def test_agents_of_a_scheduler_elsewhere_have_tokens_by_node():
    rendered = render(CHART / "ci" / "agents-only-values.yaml")
    assert not rendered.kinds & {"Secret", "Ingress", "Pod"}
    theirs = [*rendered.all("Deployment"), *rendered.all("ConfigMap")]
    assert all("-foreign" in item["metadata"]["name"] for item in theirs)
    container = rendered.container("DaemonSet")
    assert "--token-file=/etc/leasehold/tokens/$(NODE_NAME)" in container["args"]
    assert "--server=https://leasehold.example:8642" in container["args"]
    assert volumes(rendered.pod("DaemonSet"))["ca"]["secret"]["secretName"] == "scheduler-ca"
    assert not any("tokenreviews" in json.dumps(role) for role in rendered.all("ClusterRole"))


def test_without_tokens_nobody_enrols():
    rendered = render(agent__enrolment__mode="none")
    args = rendered.container("DaemonSet")["args"]
    assert not any("enrol" in one or "token" in one for one in args)
    assert "kubernetes" not in tomllib.loads(configuration(rendered))
    assert rendered.pod()["automountServiceAccountToken"] is False


def test_a_scheduler_without_agents_has_no_rights_and_no_namespace_of_jobs():
    rendered = render(agent__enabled=False)
    gone = {"DaemonSet", "Role", "ClusterRole", "Namespace", "ValidatingAdmissionPolicy"}
    assert not rendered.kinds & gone
    assert len(rendered.all("NetworkPolicy")) == 1
    assert rendered.pod()["automountServiceAccountToken"] is False


def test_what_is_given_for_the_agents_pods_reaches_them(everything):
    pod = everything.pod("DaemonSet", "-gpu")
    container = pod["containers"][0]
    assert container["args"][-1] == "--report-every=5"
    assert environment(container)["NO_PROXY"]["value"] == ".svc"
    assert container["envFrom"][0]["secretRef"]["name"] == "agent-env"
    assert mounts(container)["scratch"] == "/scratch"
    assert volumes(pod)["ca"]["secret"]["items"] == [{"key": "bundle.pem", "path": "ca.crt"}]
    assert pod["priorityClassName"] == "agents"
    assert pod["securityContext"]["runAsUser"] == 1600
    assert pod["affinity"]["nodeAffinity"]
    assert container["imagePullPolicy"] == "Never"
    update = everything.one("DaemonSet", "-gpu")["spec"]["updateStrategy"]
    assert update["rollingUpdate"] == {"maxUnavailable": 2}
    on_delete = render(agent__updateStrategy__type="OnDelete").one("DaemonSet")
    assert on_delete["spec"]["updateStrategy"] == {"type": "OnDelete"}
