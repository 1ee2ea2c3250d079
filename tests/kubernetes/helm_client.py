"""The real helm, as the administrator of a control plane."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from control_plane import ADMIN, program

if TYPE_CHECKING:
    from control_plane import ControlPlane

CHART = Path(__file__).resolve().parents[2] / "helm" / "leasehold"
PREVIOUS = Path(__file__).resolve().parents[1] / "chart" / "previous"


class Helm:
    """Runs helm with files of its own.

    Args:
        plane: the API server that it administers.
        namespace: of the release.
        values: of the chart, as YAML.
    """

    def __init__(self, plane: ControlPlane, *, namespace: str, values: str) -> None:
        home = Path(tempfile.mkdtemp(dir=plane.folder))
        self.values, self._namespace = home / "values.yaml", namespace
        self.values.write_text(values)
        self._environment = os.environ | {
            "KUBECONFIG": str(plane.kubeconfig("helm", ADMIN)),
            "HELM_CACHE_HOME": str(home),
            "HELM_CONFIG_HOME": str(home),
            "HELM_DATA_HOME": str(home),
            "NO_PROXY": "127.0.0.1",
        }

    def __call__(self, *arguments: str | Path) -> str:
        """Return what helm prints."""
        done = subprocess.run(
            [program("helm"), *arguments, "--namespace", self._namespace],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"helm {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def install(self, release: str, *more: str, chart: Path = CHART) -> str:
        given = ("--create-namespace", "--values", self.values, *more)
        return self("install", release, chart, *given)

    def upgrade(self, release: str, *more: str, chart: Path = CHART) -> str:
        return self("upgrade", release, chart, "--values", self.values, *more)
