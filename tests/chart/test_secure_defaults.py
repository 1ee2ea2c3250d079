"""Defaults of the chart keep jobs, agents and others apart."""

from __future__ import annotations

import base64
import subprocess

import pytest
from chart_rendering import environment, render, volumes
from test_toggles import POSTGRESQL, rules

from agent.kubernetes.names import owner_name
from agent.kubernetes.node.foreign_pods import SHARDS
from leasehold.cli.lazy import load
from leasehold.cli.main import COMMANDS


def test_one_program_reads_all_pods_and_agents_read_what_it_has_counted(everything):
    names = [f"shared-gpus-foreign-{n}" for n in range(SHARDS)]
    maps = {item["metadata"]["name"]: item for item in everything.all("ConfigMap")}
    assert all("data" not in maps[name] for name in names), "an upgrade would empty them"
    (all_pods,) = [
        role["metadata"]["name"]
        for role in everything.all("ClusterRole")
        if ("pods", "list") in rules(role)
    ]
    bound = {b["roleRef"]["name"]: b["subjects"] for b in everything.all("ClusterRoleBinding")}
    account = {"kind": "ServiceAccount", "name": "shared-gpus-foreign", "namespace": "gpus"}
    assert bound[all_pods] == [account]
    agents = {"kind": "ServiceAccount", "name": "gpu-agent", "namespace": "gpus"}
    for suffix, verbs, subject in (
        ("gpus-foreign", ["patch"], account),
        ("-foreign-agents", ["get", "list", "watch"], agents),
    ):
        (rule,) = everything.one("Role", suffix)["rules"]
        assert rule["resourceNames"] == names
        assert (rule["resources"], rule["verbs"]) == (["configmaps"], verbs)
        assert everything.one("RoleBinding", suffix)["subjects"] == [subject]
    pod = everything.pod("Deployment", "-foreign")
    assert pod["serviceAccountName"] == "shared-gpus-foreign"
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["priorityClassName"] == "services"
    container = pod["containers"][0]
    assert container["image"] == everything.container("DaemonSet", "-gpu")["image"]
    assert container["args"][:2] == ["count-pods", "--into=gpus/shared-gpus-foreign"]
    told = environment(everything.container("DaemonSet", "-gpu"))
    assert told["LEASEHOLD_AGENT__KUBERNETES__FOREIGN_PODS"]["value"] == "gpus/shared-gpus-foreign"
    instance = told["LEASEHOLD_INSTANCE"]["value"]
    assert f"--instance={instance}" in container["args"]


@pytest.mark.parametrize(
    ("values", "told"),
    [({"rbac__create": False}, "watch"), ({"rbac__foreignPods": False}, "")],
)
def test_without_the_counter_agents_watch_by_rights_of_your_own_or_nobody_counts(values, told):
    rendered = render(**values)
    container = rendered.container("DaemonSet")
    name = "LEASEHOLD_AGENT__KUBERNETES__FOREIGN_PODS"
    assert environment(container)[name]["value"] == told
    assert len(rendered.all("Deployment")) == 1


def test_the_program_takes_how_the_chart_starts_the_counter(everything):
    arguments = everything.container("Deployment", "-foreign")["args"]
    command = load("count-pods", COMMANDS["count-pods"])
    known = {option for parameter in command.params for option in parameter.opts}
    assert {argument.partition("=")[0] for argument in arguments[1:]} <= known


@pytest.mark.parametrize(
    ("name", "action"), [("-own-node", "Audit"), ("-job-objects", "Audit"), ("-job-pods", "Warn")]
)
def test_the_admission_policies_are_for_the_agents_account_in_the_jobs_namespace(
    everything, minimal, name, action
):
    policy = everything.one("ValidatingAdmissionPolicy", name)["spec"]
    assert "system:serviceaccount:gpus:gpu-agent" in policy["matchConditions"][0]["expression"]
    names = policy["matchConstraints"]["namespaceSelector"]["matchLabels"]
    assert names == {"kubernetes.io/metadata.name": "training"}
    binding = everything.one("ValidatingAdmissionPolicyBinding", name)["spec"]
    assert binding["validationActions"] == [action]
    plain = minimal.one("ValidatingAdmissionPolicyBinding", name)["spec"]
    assert plain["validationActions"] == ["Deny"]
    off = render(admissionPolicy__enabled=False)
    assert not off.kinds & {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def test_agents_read_and_make_one_lease_only_that_which_owns_their_pods(everything):
    told = environment(everything.container("DaemonSet", "-gpu"))
    name = owner_name(told["LEASEHOLD_INSTANCE"]["value"])
    role = everything.one("Role", "gpus-shared-gpus-agent")
    read = [rule for rule in role["rules"] if rule["resources"] == ["leases"]]
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in read] == [
        (None, ["create"]),
        ([name], ["get"]),
    ]
    policy = everything.one("ValidatingAdmissionPolicy", "-job-objects")["spec"]
    kinds = [rule["resources"] for rule in policy["matchConstraints"]["resourceRules"]]
    assert ["leases"] in kinds
    assert any(f"name == '{name}'" in one["expression"] for one in policy["validations"])


@pytest.mark.parametrize(
    ("entry", "gone"),
    [
        ("spec.priorityClassName=low", "priorityClassName"),
        ("spec.volumes[].nfs", "v.emptyDir"),
        ("spec.volumes[].projected.sources[].serviceAccountToken", "serviceAccountToken"),
        ("spec.initContainers[].securityContext.*", "privileged"),
        ("spec.*", "schedulerName"),
        ("metadata.labels.example.com/*", ""),
    ],
)
def test_what_the_operator_allows_in_templates_the_policy_lets_pass(minimal, entry, gone):
    def expressions(rendered):
        policy = rendered.one("ValidatingAdmissionPolicy", "-job-pods")["spec"]
        return [one["expression"] for one in policy["validations"]]

    wide = expressions(render(scheduler__config__kubernetes__template_allows=[entry]))
    left = set(expressions(minimal)) - set(wide)
    assert bool(left) == bool(gone)
    assert all(gone in one for one in left) or entry == "spec.*"
    assert any("NVIDIA_VISIBLE_DEVICES" in one for one in wide), "nobody may allow that"


def test_the_scheduler_reaches_its_database_wherever_a_secrets_url_leads(ha, everything):
    def ports(rendered):
        egress = rendered.one("NetworkPolicy", "-scheduler")["spec"]["egress"]
        return [port for rule in egress for port in rule.get("ports", ())]

    url = render(**POSTGRESQL).one("NetworkPolicy", "-scheduler")["spec"]["egress"]
    assert {"ports": [{"protocol": "TCP"}]} in url
    assert {"port": 5433, "protocol": "TCP"} in ports(everything)
    assert {"protocol": "TCP"} not in ports(everything)
    proxied = render(**POSTGRESQL, scheduler__sidecars=[{"name": "proxy", "image": "p"}])
    spec = proxied.one("NetworkPolicy", "-scheduler")["spec"]
    assert spec["egress"][0] == {}
    assert spec["ingress"] == [{}], "Prometheus may ask that container, too"


def test_a_certificate_is_made_where_the_values_say_so(minimal, tmp_path):
    assert not [s for s in minimal.all("Secret") if s["type"] == "kubernetes.io/tls"]
    made = render(scheduler__tls__mode="generate")
    secret = made.one("Secret", "-leasehold-tls")
    assert secret["type"] == "kubernetes.io/tls"
    for name in ("tls.crt", "ca.crt"):
        (tmp_path / name).write_bytes(base64.b64decode(secret["data"][name]))
    told = ["openssl", "verify", "-CAfile", tmp_path / "ca.crt", tmp_path / "tls.crt"]
    assert subprocess.run(told, check=True, capture_output=True, text=True).stdout.endswith("OK\n")
    told = ["openssl", "x509", "-in", tmp_path / "tls.crt", "-noout", "-ext", "subjectAltName"]
    names = subprocess.run(told, check=True, capture_output=True, text=True).stdout
    for name in ("DNS:lh-leasehold", "DNS:lh-leasehold.gpus.svc", "DNS:localhost", "127.0.0.1"):
        assert name in names
    assert "--server=https://lh-leasehold.gpus.svc:8642" in made.container("DaemonSet")["args"]
    own = volumes(made.pod("DaemonSet"))["ca"]["secret"]
    assert own["secretName"] == secret["metadata"]["name"]
    given = render(scheduler__tls__mode="generate", scheduler__tls__existingSecret="mine")
    assert not [s for s in given.all("Secret") if s["type"] == "kubernetes.io/tls"]
