"""Commands and files on the page about kind match the chart and the program."""

from __future__ import annotations

import re

import kubernetes_validate
import yaml
from chart_rendering import ROOT, render

from agent.gpus.inventory import type_name
from api.schemas.jobs import JobIn

PAGE = (ROOT / "docs" / "how-to" / "try-on-kind.md").read_text()


def typed(name):
    """Return a reader's input to a file, or to kubectl for ``-``."""
    before = "apply -f -" if name == "-" else f"> {name}"
    return re.search(rf"{before} <<'END'\n(.*?)\nEND\n", PAGE, re.DOTALL)[1]


def rendered(tmp_path):
    (tmp_path / "values.yaml").write_text(typed("my-values.yaml"))
    return render(tmp_path / "values.yaml", namespace="leasehold", release="leasehold")


def test_the_chart_takes_the_pages_values_and_calls_things_as_the_page_does(tmp_path):
    release = rendered(tmp_path)
    names = {(o["kind"], o["metadata"]["name"]) for o in release.objects}
    assert {("Service", "leasehold"), ("Secret", "leasehold-admin")} <= names
    assert ("Namespace", "leasehold-jobs") in names
    (label,) = release.pod("DaemonSet")["nodeSelector"].items()
    assert "=".join(label) in PAGE
    images = {release.container(kind)["image"] for kind in ("Deployment", "DaemonSet")}
    for image in images | {yaml.safe_load(typed("my-values.yaml"))["agent"]["defaultImage"]}:
        assert re.search(rf"docker build .*-t {re.escape(image)} ", PAGE), image
        assert re.search(rf"kind load docker-image .*{re.escape(image)}", PAGE), image


def test_the_pages_jobs_fit_its_nodes_and_its_volume(tmp_path):
    args = rendered(tmp_path).container("DaemonSet")["args"]
    products = re.findall(r"nvidia.com/gpu.product=(\S+)", PAGE)
    given = dict(re.findall(r"--worker-name=(\S+)=(\S+)", "\n".join(args)))
    types = {given.get(product, type_name(product)) for product in products}
    claims = [o for o in yaml.safe_load_all(typed("-")) if o["kind"] == "PersistentVolumeClaim"]
    jobs = [JobIn.model_validate(job) for job in yaml.safe_load(typed("jobs.yaml"))]
    assert len(jobs) == 3
    assert len(types) == 2, "the nodes are unlike"
    for job in jobs:
        assert set(job.throughputs) == types
        (mount,) = job.kubernetes.volumes
        assert mount.claim == claims[0]["metadata"]["name"]
        assert job.checkpoint_dir == f"{mount.path}/{job.name}"
        assert job.command[1] == "/train/numpy_training.py"


def test_the_pages_objects_are_as_kubernetes_schemas_ask():
    for item in yaml.safe_load_all(typed("-")):
        kubernetes_validate.validate(item, "1.35", strict=True)
