"""Every values file of the chart, taken by a real API server: first as a dry run, then really."""

from __future__ import annotations

import subprocess

import pytest
import yaml
from control_plane import program
from helm_client import CHART, Helm
from installation import eventually

VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
#: Kinds by the path of their group, in the order in which they can be made.
GROUPS = {
    "/api/v1": [
        "Namespace",
        "ServiceAccount",
        "Secret",
        "ConfigMap",
        "Service",
        "PersistentVolumeClaim",
        "ResourceQuota",
        "LimitRange",
    ],
    "/apis/rbac.authorization.k8s.io/v1": [
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ],
    "/apis/networking.k8s.io/v1": ["NetworkPolicy", "Ingress"],
    "/apis/policy/v1": ["PodDisruptionBudget"],
    "/apis/scheduling.k8s.io/v1": ["PriorityClass"],
    "/apis/admissionregistration.k8s.io/v1": [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ],
    "/apis/apps/v1": ["Deployment", "DaemonSet"],
    "/apis/batch/v1": ["Job"],
    "/apis/monitoring.coreos.com/v1": ["ServiceMonitor", "PrometheusRule"],
}
CLUSTER_WIDE = {
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
KINDS = [kind for kinds in GROUPS.values() for kind in kinds]


@pytest.fixture(scope="module")
def admin(plane):
    api = plane.api()
    for kind in GROUPS["/apis/monitoring.coreos.com/v1"]:
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind))
        path = f"/apis/monitoring.coreos.com/v1/{plural(kind)}"
        eventually(f"{kind} is known", lambda path=path: "items" in api.get(path))
    yield api
    api.close()


def definition(kind):
    """Return a kind of the Prometheus operator, without its schema."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


def plural(kind):
    word = kind.lower()
    if word.endswith("s"):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def path_of(item):
    """Return an object's path on an API server."""
    (base,) = (base for base, kinds in GROUPS.items() if item["kind"] in kinds)
    meta = item["metadata"]
    place = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{base}{place}/{plural(item['kind'])}/{meta['name']}"


def rendered(path, namespace):
    """Return the objects of a values file, hooks included, in the order in which they are made."""
    command = [program("helm"), "template", "lh", CHART, "--namespace", namespace]
    command += ["--values", path, "--kube-version", "1.35.4"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = [item for item in yaml.safe_load_all(text) if item and item["kind"] != "Pod"]
    for item in found:
        if item["kind"] not in CLUSTER_WIDE:  # helm puts the others into the release's
            item["metadata"].setdefault("namespace", namespace)
    return sorted(found, key=lambda item: KINDS.index(item["kind"]))


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_every_object_is_taken_as_it_is_without_an_unknown_field(admin, path):
    namespace = f"apply-{path.stem.removesuffix('-values')}"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    admin.create("/api/v1/namespaces", space)
    items = rendered(path, namespace)
    spaces = [item for item in items if item["kind"] == "Namespace"]
    for item in spaces:
        admin.ask("APPLY", path_of(item), item, fieldValidation="Strict")
    for item in items:
        tried = admin.ask("APPLY", path_of(item), item, fieldValidation="Strict", dryRun="All")
        assert tried["kind"] == item["kind"]
    for item in items:
        made = admin.ask("APPLY", path_of(item), item, fieldValidation="Strict")
        assert made["metadata"]["uid"]
        again = admin.ask("APPLY", path_of(item), item, fieldValidation="Strict")
        assert again["metadata"].get("generation") == made["metadata"].get("generation")
    for item in reversed(items):
        if item["kind"] != "Namespace":
            admin.delete(path_of(item))


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_helm_itself_installs_and_removes_what_the_file_describes(plane, admin, path):
    namespace = f"helm-{path.stem.removesuffix('-values')}"
    helm = Helm(plane, namespace=namespace, values=path.read_text())
    own = ("--no-hooks", "--set", f"jobs.namespace={namespace}-jobs")
    helm.install("lh", *own, "--dry-run=server")
    helm.install("lh", *own)
    assert "STATUS: deployed" in helm("status", "lh")
    helm.upgrade("lh", *own)
    helm("uninstall", "lh", "--no-hooks")
    for kind in ("deployments", "daemonsets"):
        assert not admin.get(f"/apis/apps/v1/namespaces/{namespace}/{kind}")["items"]
