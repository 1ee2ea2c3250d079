"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))  # for the modules of this folder
sys.path.append(str(HERE.parent / "kubernetes"))  # and for those of the smaller suite
#: Set by .ci/test-cluster: the folder of everything that is written, and the archives of images.
FOLDER, IMAGES = "LEASEHOLD_CLUSTER", "LEASEHOLD_CLUSTER_IMAGES"


@pytest.fixture(scope="session")
def cluster():
    """Two nodes that are ready; nothing is installed on them."""
    if FOLDER not in os.environ:
        pytest.skip("it needs namespaces of its own: make test-cluster")
    from cluster import Cluster

    made = Cluster(Path(os.environ[FOLDER]), [Path(p) for p in os.environ[IMAGES].split(":")])
    began_s = time.monotonic()
    try:
        made.start()
        print(f"nodes ready after {time.monotonic() - began_s:.1f} s", file=sys.stderr)
        yield made
        held = sum(made.memory_bytes().values()) / 2**20
        print(f"the cluster's own programs hold {held:.0f} MiB", file=sys.stderr)
    finally:
        made.stop()


@pytest.fixture(scope="session")
def installed(cluster):
    """The chart, with all workers in use by its scheduler."""
    from installed import Installed

    began_s = time.monotonic()
    chart = Installed(cluster)
    try:
        chart.keep_secrets()
        chart.install()
        print(f"chart installed after {time.monotonic() - began_s:.1f} s", file=sys.stderr)
        yield chart
    finally:
        chart.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Print the state of the cluster if a test has failed."""
    report = yield
    made = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and made is not None:
        report.sections.append(("the cluster", made.describe()))
    return report
