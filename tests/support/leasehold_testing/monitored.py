"""What dashboards and rules may speak of, and promtool, which says what Prometheus takes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.views.dues import Dues
from scheduler.views.gpu_figures import GpuFigures
from scheduler.views.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOOL: Final = Path(__file__).resolve().parents[2] / "tools" / "promtool.sh"
#: With this the script says that there is no promtool, and nothing to take it from.
_CANNOT_BE_HAD: Final = 2


def exposed() -> tuple[set[str], dict[tuple[str, str], set[str]]]:
    """Return the names of all series that the daemon shows, and the values of their labels."""
    metrics = Metrics()
    metrics.set_workers({"v100": 1}, {"v100": 1}, {"v100": 1})
    metrics.set_deviation(mean=0.0, largest=0.0)
    metrics.set_doubted(())
    metrics.set_round_gap(0.0, 0.01)
    dues = Dues(
        due_workers=1.0, received_workers=1.0, owed_worker_s=0.0, mean_rho=1.0, worst_rho=1.0
    )
    metrics.set_dues({"vision": dues})
    metrics.set_use({"vision": GpuFigures(gpus=1)})
    metrics.lease_ended("completed")
    metrics.used("vision", "v100", 1.0)
    metrics.launching("vision", "v100", 1.0)
    names: set[str] = set()
    labels: dict[tuple[str, str], set[str]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            names.add(sample.name)
            for label, value in sample.labels.items():
                labels.setdefault((sample.name, label), set()).add(value)
    return names, labels


#: What Prometheus, or its operator, adds to every series.
_ADDED: Final = {"job", "namespace", "instance", "pod"}


def check_expressions(expressions: Iterable[str]) -> None:
    """Check that expressions name only series, labels and values that the daemon has.

    Raises:
        AssertionError: the first that does not.
    """
    names, labels = exposed()
    expressions = list(expressions)
    assert expressions
    for text in expressions:
        used = set(re.findall(r"\b(?:leasehold|process)_[a-z_]+", text))
        assert used, text
        assert used <= names, f"{used - names} in {text}"
        for name, inside in re.findall(r"\b(\w+)\{([^}]*)\}", text):
            for label, values in re.findall(r'(\w+)=~?"([^"]*)"', inside):
                if label not in _ADDED:
                    assert set(values.split("|")) <= labels[name, label], text
        for grouped in re.findall(r"\bby \(([^)]*)\)", text):
            known = {label for name, label in labels if name in used} | _ADDED
            assert {label.strip() for label in grouped.split(",")} <= known, text


def promtool(*arguments: str | Path, given: str = "") -> str:
    """Return what promtool says; the first time it is fetched.

    Args:
        arguments: of its command line.
        given: on its standard input.

    Raises:
        AssertionError: it is not content; the message is its output.
    """
    found = subprocess.run([_TOOL], check=False, stdout=subprocess.PIPE, text=True)
    if found.returncode == _CANNOT_BE_HAD:
        pytest.skip("promtool is taken out of a package of Debian, and there is no apt-get here")
    assert found.returncode == 0, "promtool could not be fetched"
    done = subprocess.run(
        [found.stdout.strip(), *arguments], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
