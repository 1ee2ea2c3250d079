"""From the chart before this one to this one, back, and on: on a real API server."""

from __future__ import annotations

import pytest
from control_plane import ApiError
from helm_client import PREVIOUS, Helm

#: With these the previous chart was rendered; see its Chart.yaml.
VALUES = """
scheduler: {image: {tag: dev}}
agent: {image: {tag: dev}}
admissionPolicy: {enabled: true}
networkPolicies: {scheduler: {enabled: true}, agent: {enabled: true}}
jobs: {resourceQuota: {enabled: true, hard: {pods: "50"}}}
"""
KEPT = {
    "/api/v1/namespaces/gpus/persistentvolumeclaims/lh-leasehold-state",
    "/api/v1/namespaces/gpus/secrets/lh-leasehold-admin",
    "/api/v1/namespaces/leasehold-jobs",
    "/apis/apps/v1/namespaces/gpus/deployments/lh-leasehold-scheduler",
    "/apis/apps/v1/namespaces/gpus/daemonsets/lh-leasehold-agent-gpu",
    "/api/v1/namespaces/gpus/services/lh-leasehold",
    "/api/v1/namespaces/gpus/serviceaccounts/lh-leasehold-agent",
}


@pytest.fixture(scope="module")
def admin(plane):
    api = plane.api()
    yield api
    api.close()


def chart_labels(admin):
    """Return which versions of the chart the workloads of the release belong to."""
    found = set()
    for kind in ("deployments", "daemonsets"):
        for item in admin.get(f"/apis/apps/v1/namespaces/gpus/{kind}")["items"]:
            found.add(item["metadata"]["labels"]["helm.sh/chart"])
    return found


def test_the_previous_chart_is_upgraded_in_place_rolled_back_and_upgraded_again(plane, admin):
    helm = Helm(plane, namespace="gpus", values=VALUES)
    helm.install("lh", chart=PREVIOUS)
    before = {path: admin.get(path) for path in KEPT}
    (old,) = chart_labels(admin)
    helm.upgrade("lh", "--dry-run=server")
    helm.upgrade("lh")
    (new,) = chart_labels(admin)
    assert new != old, "the chart has changed since; so must its version"
    for path, item in before.items():
        now = admin.get(path)
        assert now["metadata"]["uid"] == item["metadata"]["uid"], f"{path} was made anew"
    secret = "/api/v1/namespaces/gpus/secrets/lh-leasehold-admin"
    assert admin.get(secret)["data"] == before[secret]["data"], "people's token is as it was"
    claim = "/api/v1/namespaces/gpus/persistentvolumeclaims/lh-leasehold-state"
    assert admin.get(claim)["spec"] == before[claim]["spec"]
    helm("rollback", "lh", "1")
    assert chart_labels(admin) == {old}
    helm.upgrade("lh")
    assert chart_labels(admin) == {new}
    assert admin.get(secret)["data"] == before[secret]["data"]
    history = helm("history", "lh", "--output=json")
    assert history.count("deployed") == 1
    helm("uninstall", "lh")
    with pytest.raises(ApiError):
        admin.get("/apis/apps/v1/namespaces/gpus/deployments/lh-leasehold-scheduler")
    assert admin.get(claim)["metadata"]["uid"] == before[claim]["metadata"]["uid"]
