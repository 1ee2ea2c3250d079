"""``leasehold alerts`` and ``leasehold dashboard``: files for Prometheus and Grafana."""

from __future__ import annotations

import math
from importlib import resources
from typing import Annotated

import typer

from scheduler.domain.jobs.fields import LONGEST_S

#: Selector in ``alerts.yaml`` that the chart and these commands replace.
_SELECTOR = 'job="leasehold"'
_THREE_ROUNDS = "1080s"
#: Shortest window of a rule: a shorter one could hold a single scrape, and then shows no change.
_LEAST_WINDOW_S = 300
_HALF_DEADLINE = "0.5 * 60"


def alerts(
    *,
    job: Annotated[
        str, typer.Option("--job", help="Name of the job of Prometheus that scrapes the scheduler.")
    ] = "leasehold",
    round_length_s: Annotated[
        float,
        typer.Option("--round-length-s", min=0.001, help="`engine.round_length_s` of the daemon."),
    ] = 360.0,
    deadline_s: Annotated[
        float, typer.Option("--deadline-s", min=0.001, help="`solver.deadline_s` of the daemon.")
    ] = 60.0,
) -> None:
    """Print the alert rules for Prometheus.

    Write them to a file that `rule_files` in prometheus.yml names.
    """
    typer.echo(alert_rules(job=job, round_length_s=round_length_s, deadline_s=deadline_s), nl=False)


def dashboard() -> None:
    """Print the dashboard for Grafana.

    Import it in Grafana, or write it into the folder of a provider of dashboards.
    """
    typer.echo(_read("dashboard.json"), nl=False)


def alert_rules(*, job: str, round_length_s: float, deadline_s: float) -> str:
    """Return the alert rules as a YAML file of Prometheus.

    Args:
        job: label ``job`` of the metrics that Prometheus scrapes from the scheduler.
        round_length_s: length of a round, in seconds.
        deadline_s: the deadline of a policy's answer, in seconds.

    Raises:
        typer.BadParameter: the name of the job, or a span, cannot stand in a rule.
    """
    if not job or not job.isprintable() or set(job) & set("\"'\\"):
        raise typer.BadParameter(
            f"{job!r} is no name of a job: it is empty, or has quotes or backslashes",
            param_hint="--job",
        )
    for option, seconds in (("--round-length-s", round_length_s), ("--deadline-s", deadline_s)):
        if not 0.0 < seconds <= LONGEST_S:
            raise typer.BadParameter(
                f"{seconds:g} is no span; give seconds, {LONGEST_S:g} at most", param_hint=option
            )
    text = _read("alerts.yaml").replace(_SELECTOR, f'job="{job}"')
    window_s = max(math.ceil(3 * round_length_s), _LEAST_WINDOW_S)
    text = text.replace(_THREE_ROUNDS, f"{window_s}s")
    return text.replace(_HALF_DEADLINE, f"0.5 * {deadline_s:g}")


def _read(name: str) -> str:
    return (resources.files("leasehold") / "monitoring" / name).read_text(encoding="utf-8")
