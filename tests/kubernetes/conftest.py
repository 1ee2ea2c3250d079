"""A control plane with the chart on it for all tests, and nodes for each."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for the modules of this folder


@contextlib.contextmanager
def running_plane():
    """Start a control plane, and stop it."""
    from control_plane import ControlPlane

    if not shutil.which(os.environ.get("GO") or "go") and not Path("/usr/local/go/bin/go").exists():
        pytest.skip("there is no go here to build kube-apiserver and etcd with")
    plane = ControlPlane()
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def chart_plane():
    """A control plane on which helm has installed the chart."""
    from installation import install_chart

    with running_plane() as plane:
        install_chart(plane)
        yield plane


@pytest.fixture(scope="module")
def plane():
    """An empty control plane."""
    with running_plane() as plane:
        yield plane


@pytest.fixture
def live(chart_plane, tmp_path):
    """Start nodes and an installation: live([nodes], **options) -> (kubelets, installation)."""
    with contextlib.ExitStack() as stack:
        stack.callback(remove_everything, chart_plane)

        def make(nodes, **options):
            from fake_kubelets import FakeKubelets
            from installation import Installation
            from pod_scripts import SCRIPTS

            kubelets = FakeKubelets(chart_plane, nodes, SCRIPTS)
            stack.callback(kubelets.stop)
            kubelets.start()
            made = Installation(chart_plane, nodes, tmp_path, **options)
            stack.callback(made.stop)
            made.start()
            return kubelets, made

        yield make


@pytest.fixture
def admin(chart_plane):
    """The administrator's way to the API server."""
    api = chart_plane.api()
    yield api
    api.close()


@pytest.fixture
def proxy(chart_plane):
    """Something between the agents and the API server that a test can break."""
    from flaky_proxy import FlakyProxy

    proxy = FlakyProxy(chart_plane)
    proxy.start()
    yield proxy
    proxy.stop()


def remove_everything(plane):
    """Remove the pods and nodes of a test."""
    api = plane.api()
    for namespace in ("leasehold-jobs", "gpus"):
        for pod in api.pods(namespace):
            name = pod["metadata"]["name"]
            api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)
    for node in api.get("/api/v1/nodes")["items"]:
        api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    api.close()
