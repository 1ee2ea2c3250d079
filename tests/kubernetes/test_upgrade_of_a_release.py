"""An earlier chart with Ingress, Prometheus and PostgreSQL, upgraded to this one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from helm_client import CHART, Helm
from installation import eventually
from test_chart_apply import GROUPS, definition, plural

from leasehold_testing.releases import BEFORE, OLDEST, chart_of_release

ROOT = Path(__file__).resolve().parents[2]
PLAIN = "scheduler: {image: {tag: dev}}\nagent: {image: {tag: dev}}\n"
VALUES = """
scheduler:
  image: {tag: dev}
  ingress:
    enabled: true
    hosts: [{host: leasehold.example, path: /}]
  sidecars: [{name: proxy, image: proxy}]
agent: {image: {tag: dev}}
database: {type: postgresql, postgresql: {existingSecret: database}}
monitoring:
  metricsOpen: true
  serviceMonitor: {enabled: true}
jobs: {namespace: JOBS}
"""
WAYS = {"values": (), "reuse-values": ("--reuse-values",)}


@pytest.fixture(scope="module")
def admin(plane):
    api = plane.api()
    for kind in GROUPS["/apis/monitoring.coreos.com/v1"]:
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind))
        path = f"/apis/monitoring.coreos.com/v1/{plural(kind)}"
        eventually(f"{kind} is known", lambda path=path: "items" in api.get(path))
    yield api
    api.close()


@pytest.fixture(scope="module", params=WAYS)
def upgraded(request, plane, admin, tmp_path_factory):
    """Return how the oldest chart was upgraded, its namespace, its objects, and the notes."""
    chart = chart_of_release(ROOT, tmp_path_factory.mktemp("before"), OLDEST)
    return request.param, *upgrade(plane, admin, f"up-{request.param}", chart, WAYS[request.param])


def upgrade(plane, admin, namespace, chart, way):
    """Install a chart and upgrade it; return the namespace, its objects, and the notes."""
    helm = Helm(plane, namespace=namespace, values=VALUES.replace("JOBS", f"{namespace}-jobs"))
    helm.install("lh", "--no-hooks", chart=chart)
    old = everything(admin, namespace)
    given = () if way else ("--values", helm.values)
    notes = helm("upgrade", "lh", CHART, "--no-hooks", *given, *way)
    return namespace, old, notes


def everything(admin, namespace):
    """Return what people and programs outside of the release depend on."""
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    networks = f"/apis/networking.k8s.io/v1/namespaces/{namespace}"
    monitors = f"/apis/monitoring.coreos.com/v1/namespaces/{namespace}/servicemonitors"
    pod = admin.get(f"{apps}/deployments/lh-leasehold-scheduler")["spec"]["template"]["spec"]
    config = admin.get(f"{core}/configmaps/lh-leasehold-config")["data"]["leasehold.toml"]
    return {
        "ports": admin.get(f"{core}/services/lh-leasehold")["spec"]["ports"],
        "ingress": admin.get(f"{networks}/ingresses/lh-leasehold")["spec"],
        "monitor": admin.get(f"{monitors}/lh-leasehold-scheduler")["spec"],
        "probe": pod["containers"][0]["readinessProbe"],
        "environment": pod["containers"][0]["env"],
        "volumes": [one["name"] for one in pod["volumes"]],
        "server": tomllib.loads(config)["server"],
        "token": admin.get(f"{core}/secrets/lh-leasehold-admin")["data"],
    }


def on_both_families(old):
    """Return what a release from before has, but that it listens on IPv6, too."""
    assert old["server"]["host"] == "0.0.0.0"
    return old | {"server": old["server"] | {"host": "::"}}


def test_ingress_prometheus_and_postgresql_find_what_they_found(admin, upgraded):
    _, namespace, old, _ = upgraded
    assert everything(admin, namespace) == on_both_families(old)
    assert old["probe"]["httpGet"]["scheme"] == "HTTP"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_release_before_keeps_what_it_has(plane, admin, tmp_path, way):
    chart = chart_of_release(ROOT, tmp_path, BEFORE)
    namespace = "from-before-again" if way else "from-before"
    _, old, _ = upgrade(plane, admin, namespace, chart, way)
    assert everything(admin, namespace) == on_both_families(old)


def test_no_policy_stands_in_their_way(admin, upgraded):
    way, namespace, _, _ = upgraded
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    found = {item["metadata"]["name"]: item["spec"] for item in admin.get(path)["items"]}
    if way == "reuse-values":
        assert found == {}, "the values of before say so"
        return
    assert set(found) == {"lh-leasehold-scheduler", "lh-leasehold-agent", "lh-leasehold-foreign"}
    scheduler = found["lh-leasehold-scheduler"]
    assert scheduler["ingress"] == [{}], "a container of theirs may be asked by Prometheus"
    assert {"ports": [{"protocol": "TCP"}]} in scheduler["egress"], "the URL's port is not known"


def test_policies_for_pods_warn_at_first_so_that_jobs_from_before_run_on(admin, upgraded):
    way, namespace, _, _ = upgraded
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    actions = {
        item["metadata"]["name"].removeprefix(f"{namespace}-lh-leasehold-"): item["spec"][
            "validationActions"
        ]
        for item in admin.get(path)["items"]
        if item["metadata"]["name"].startswith(f"{namespace}-")
    }
    if way == "reuse-values":
        assert actions == {}
    else:
        names = ("own-node", "job-objects", "job-pods")
        assert actions == {name: ["Warn", "Audit"] for name in names}


def test_agents_read_no_pods_of_others_any_more_and_the_counter_does(admin, upgraded):
    _, namespace, _, _ = upgraded
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    agent = admin.get(f"{roles}/{namespace}-lh-leasehold-agent")["rules"]
    assert [rule["resources"] for rule in agent] == [["nodes"]]
    counter = admin.get(f"{roles}/{namespace}-lh-leasehold-foreign")["rules"]
    assert [rule["resources"] for rule in counter] == [["pods"]]
    apps = f"/apis/apps/v1/namespaces/{namespace}"
    made = admin.get(f"{apps}/deployments/lh-leasehold-foreign")["spec"]["template"]["spec"]
    assert made["containers"][0]["resources"]["limits"]["memory"]
    agents = admin.get(f"{apps}/daemonsets/lh-leasehold-agent-gpu")["spec"]["template"]["spec"]
    told = {one["name"]: one.get("value") for one in agents["containers"][0]["env"]}
    name = f"{namespace}/lh-leasehold-foreign"
    assert told["LEASEHOLD_AGENT__KUBERNETES__FOREIGN_PODS"] == name


def test_the_notes_say_what_has_changed(upgraded):
    way, _, _, notes = upgraded
    assert "CHANGED since 0.2.0" in notes
    assert "deployment/lh-leasehold-foreign counts who holds GPUs" in notes
    assert "this one goes on speaking HTTP" in notes
    assert "template_allows" in notes
    if way == "reuse-values":
        assert "admissionPolicy.enabled is false, as your values say" in notes
        assert "networkPolicies.scheduler or .agent is off, as your values say" in notes
    else:
        assert '["Warn","Audit"]' in notes
        assert "admissionPolicy.jobPods.action=Deny" in notes


def test_a_new_installation_speaks_tls_and_refuses_and_an_upgrade_of_it_changes_neither(
    plane, admin
):
    helm = Helm(plane, namespace="new", values=f"{PLAIN}jobs: {{namespace: new-jobs}}\n")
    notes = helm.install("lh", "--no-hooks")
    assert "LEASEHOLD_SERVER=https://127.0.0.1:8642" in notes
    assert "LEASEHOLD_CA_FILE=" in notes
    secret = "/api/v1/namespaces/new/secrets/lh-leasehold-tls"
    first = admin.get(secret)["data"]
    assert set(first) == {"tls.crt", "tls.key", "ca.crt"}
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

    def actions():
        return {
            json.dumps(item["spec"]["validationActions"])
            for item in admin.get(path)["items"]
            if item["metadata"]["name"].startswith("new-")
        }

    assert actions() == {'["Deny"]'}
    for way in (("--values", helm.values), ("--reuse-values",)):
        helm("upgrade", "lh", CHART, "--no-hooks", *way)
        assert admin.get(secret)["data"] == first, "clients trust it"
        assert actions() == {'["Deny"]'}


def test_the_counts_survive_an_upgrade(plane, admin):
    helm = Helm(plane, namespace="kept", values=f"{PLAIN}jobs: {{namespace: kept-jobs}}\n")
    helm.install("lh", "--no-hooks")
    path = "/api/v1/namespaces/kept/configmaps/lh-leasehold-foreign-3"
    admin.patch(path, {"data": {"alpha": "{}"}})
    helm.upgrade("lh", "--no-hooks", "--set", "commonLabels.team=a")
    assert admin.get(path)["data"] == {"alpha": "{}"}
    assert admin.get(path)["metadata"]["labels"]["team"] == "a"
