"""What an operator may set about an agent's loop."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.operator_settings import setting
from scheduler.protocol.desired import MARGIN_S


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """The intervals of the agent's work."""

    report_every_s: float = setting(10.0, "Seconds between reports without news.", ge=0.1)
    progress_every_s: float = setting(5.0, "Seconds between reports of mere progress.", ge=0.1)
    health_every_s: float = setting(30.0, "Seconds between two looks at the workers.", ge=0.1)


@dataclass(frozen=True, kw_only=True)
class AgentSettings(ReportSettings):
    """Times of the loop.

    Attributes:
        margin_s: from SIGKILL to a lease's deadline.
        report_least_s: between reports with news, except the end of a lease: another job may be
            waiting for its workers.
        tick_s: longest time between two checks of the processes.
        health_most_s: a longer check is reported as a remark.
        retry_least_s: first wait after the scheduler could not be reached; doubles.
        retry_most_s: longest such wait.
        retry_refused_s: first wait after the scheduler has refused the agent's token; doubles.
        retry_refused_most_s: longest such wait.
        start_most_s: how long processes of a lease may take to appear.
        disk_every_s: between two attempts to write in the state folder.
        gpu_every_s: between two samples of GPU use.
    """

    margin_s: float = MARGIN_S
    report_least_s: float = 0.1
    tick_s: float = 1.0
    health_most_s: float = 30.0
    retry_least_s: float = 0.2
    retry_most_s: float = 5.0
    retry_refused_s: float = 30.0
    retry_refused_most_s: float = 600.0
    start_most_s: float = 120.0
    disk_every_s: float = 10.0
    gpu_every_s: float = 2.0
