"""Every values file renders to objects that Kubernetes knows, and every value is set by one."""

from __future__ import annotations

import re

import kubernetes_validate
import pytest
import yaml
from chart_rendering import CHART, KUBERNETES, VALUES, helm, rendered_file
from values_table import README, explained, leaves, page

#: Validated against no schema: they belong to the Prometheus operator.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}
#: Without a namespace.
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding"} | {
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
by_file = pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)


@by_file
def test_helm_finds_nothing_to_complain_about(path):
    arguments = ("--strict", "--kube-version", KUBERNETES, "--values", str(path))
    assert "0 chart(s) failed" in helm("lint", str(CHART), *arguments)


@by_file
def test_every_object_is_as_kubernetes_schemas_ask(path):
    objects = [o for o in rendered_file(path).objects if o["kind"] not in FOREIGN]
    assert len(objects) >= 8
    for item in objects:
        kubernetes_validate.validate(item, "1.35", strict=True)


@by_file
def test_every_object_has_a_place_a_name_of_its_own_and_the_usual_labels(path):
    seen = set()
    own = [o for o in rendered_file(path).objects if o["metadata"]["name"] not in EXTRA]
    for item in own:
        meta = item["metadata"]
        assert ("namespace" in meta) is (item["kind"] not in CLUSTER_WIDE), meta["name"]
        assert meta["labels"]["app.kubernetes.io/part-of"] == "leasehold"
        assert {"app.kubernetes.io/name", "app.kubernetes.io/instance", "helm.sh/chart"} <= set(
            meta["labels"]
        )
        key = (item["kind"], meta.get("namespace"), meta["name"])
        assert key not in seen
        seen.add(key)


#: `extraObjects` of everything-values.yaml.
EXTRA = {"shared-gpus-motd", "second"}


@by_file
def test_every_pod_is_as_restricted_as_the_strictest_level_asks(path):
    for item in rendered_file(path).objects:
        for spec in _pod_specs(item):
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert not spec.get("hostNetwork")
            assert not any("hostPath" in volume for volume in spec.get("volumes", ()))
            container = spec["containers"][0]
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"]["memory"]
            assert not any(port.get("hostPort") for port in container.get("ports", ()))


def _pod_specs(item):
    if item["kind"] == "Pod":
        yield item["spec"]
    elif item["kind"] in {"Deployment", "DaemonSet", "Job"}:
        yield item["spec"]["template"]["spec"]


def test_what_mounts_a_volume_has_it_and_every_volume_is_mounted(everything):
    for item in everything.objects:
        for spec in _pod_specs(item):
            names = {volume["name"] for volume in spec.get("volumes", ())}
            mounts = spec["containers"][0].get("volumeMounts", ())
            assert {mount["name"] for mount in mounts} == names, item["metadata"]["name"]
            paths = [mount["mountPath"] for mount in mounts]
            assert len(paths) == len(set(paths))


def test_the_file_that_sets_everything_does():
    default = yaml.safe_load((CHART / "values.yaml").read_text())
    given = yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text())
    assert _paths(default) - _paths(given) == set()


def _paths(values, before=""):
    """Return the dotted names of all values; maps that users fill are values themselves."""
    found = set()
    for name, value in values.items():
        path = f"{before}{name}"
        found.add(path)
        if isinstance(value, dict) and value and not re.search(r"[/]", "".join(value)):
            found |= _paths(value, f"{path}.")
    return found


def test_every_value_is_explained_and_the_readme_says_so_too():
    text = (CHART / "values.yaml").read_text()
    names = {name for name, _ in explained(text)}
    for leaf in leaves(yaml.safe_load(text)):
        parts = leaf.split(".")
        assert names & {".".join(parts[: n + 1]) for n in range(len(parts))}, leaf
    assert README.read_text() == page(), "run python tests/chart/values_table.py"
