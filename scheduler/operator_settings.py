"""Settings that operators may give: how one is declared, and those of rounds, leases and data.

A class of settings is a section of the daemon's configuration, or a part of one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from scheduler.errors import ParameterError

_SIGNS: Final = {"ge": ">=", "gt": ">", "le": "<="}


def setting(
    default: object,
    help: str,  # noqa: A002  the word that dataclass metadata and command lines use
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    choices: tuple[str, ...] = (),
    endless: bool = False,
    derived: str = "",
    variables: tuple[str, ...] = (),
) -> Any:
    """Declare a setting that operators may give in a file, a variable or a flag.

    Args:
        default: the value if none is given; None if it is derived or absent.
        help: one sentence.
        ge: smallest allowed value.
        gt: value that it must exceed.
        le: largest allowed value.
        choices: the allowed words; any if empty.
        endless: whether ``inf`` is allowed.
        derived: from what the default is derived, in words.
        variables: further environment variables that set it, the strongest first.

    Returns:
        A dataclass field, typed ``Any`` so that ``port: int = setting(8642, ...)`` checks.
    """
    metadata = {
        "help": help,
        "bounds": {k: v for k, v in (("ge", ge), ("gt", gt), ("le", le)) if v is not None},
        "choices": choices,
        "endless": endless,
        "derived": derived,
        "variables": variables,
    }
    if isinstance(default, Mapping):  # dataclasses take no unhashable default
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def range_in_words(bounds: Mapping[str, float]) -> str:
    """Return the range of a setting in words; empty if there are no bounds."""
    return " and ".join(f"{_SIGNS[name]} {bound:g}" for name, bound in bounds.items())


def is_in_range(value: float, bounds: Mapping[str, float], *, endless: bool) -> bool:
    """Return whether a number is within the range of a setting."""
    return (
        value >= bounds.get("ge", -math.inf)
        and not value <= bounds.get("gt", -math.inf)
        and value <= bounds.get("le", math.inf)
        and (endless or math.isfinite(value))
    )


def check_ranges(settings: Any) -> None:
    """Check the numbers among the settings of a dataclass.

    Raises:
        ParameterError: one is out of its range; names it, its value and the range.
    """
    for declared in dataclasses.fields(settings):
        value, about = getattr(settings, declared.name), declared.metadata
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not about or not is_number:
            continue
        if not is_in_range(value, about["bounds"], endless=about["endless"]):
            words = range_in_words(about["bounds"])
            raise ParameterError(f"{declared.name} is {value!r}; it must be {words or 'finite'}")


def values_of(settings: Any, kind: type[Any]) -> dict[str, Any]:
    """Return the values of those fields of settings that a class of settings declares."""
    return {one.name: getattr(settings, one.name) for one in dataclasses.fields(kind)}


@dataclass(frozen=True, kw_only=True)
class RoundSettings:
    """Rounds."""

    round_length_s: float = setting(360.0, "The scheduling quantum.", gt=0)
    keep_bonus: float = setting(
        0.5, "Rounds that another job must be further behind to take a running job's workers.", ge=0
    )
    behind_rounds: float = setting(
        4.0,
        "Rounds behind its share from which on a job comes first, however much it has left to do.",
        ge=1,
    )
    ahead_rounds: float = setting(1.0, "Rounds that a job may be ahead of its share.", ge=0)
    refresh_rounds: int = setting(
        1, "A time-dependent policy is asked again every so many rounds.", ge=1
    )
    solve_grace_s: float = setting(
        1.0, "How long idle workers wait for a new allocation before the old one is used.", ge=0
    )
    retry_backoff_s: float = setting(
        30.0,
        "Wait after a job's first failure of its own, and after its second loss in a row; doubles "
        "up to 16 times.",
        ge=0,
    )
    forgive_failures_s: float = setting(
        3600.0,
        "A job's failures count no more after so long under leases in which it saved steps.",
        ge=0,
        endless=True,
    )
    hold_after_deaths: int = setting(
        2, "A job is held after so many agents in a row died soon after its starts; 0: never.", ge=0
    )
    avoid_node_s: float = setting(
        60.0,
        "How long a job avoids a node that could not start it; doubles up to 16 times. 0: never.",
        ge=0,
    )
    patience_s: float = setting(
        86_400.0,
        "Longest time for which a lease is protected from the job that is "
        "due: min_run_time_s, lost work.",
        ge=0,
    )


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    """Leases and the nodes that hold them."""

    margin_s: float = setting(
        2.0,
        "After a deadline, until workers are granted again if their release is not confirmed.",
        gt=0,
    )
    notice_s: float = setting(
        5.0,
        "From the notice to SIGTERM, if a job sets no other time. A plan leaves room for it.",
        ge=0,
    )
    grace_s: float = setting(
        5.0,
        "From SIGTERM to SIGKILL, if a job sets no other time. A plan leaves room for it.",
        ge=0,
    )
    node_timeout_s: float = setting(
        60.0,
        "A node that is silent for so long is lost; after half of it, nothing new starts there.",
        gt=0,
    )
    start_timeout_s: float = setting(
        3600.0, "A lease that does not run after so long is revoked.", gt=0
    )
    quarantine_after: int = setting(
        3,
        "A node on which so many jobs failed by its fault within an hour is quarantined; 0: never.",
        ge=0,
    )
    quarantine_share: float = setting(
        0.25, "Share of the workers of a type that may be kept out so at once.", ge=0
    )


@dataclass(frozen=True, kw_only=True)
class IdleSettings:
    """Jobs that hold GPUs and do not use them, where agents can measure that (NVML)."""

    use_percent: float = setting(
        5.0,
        "A job is idle while its GPUs compute for less than this share of the time, in percent.",
        ge=0,
        le=100,
    )
    after_s: float = setting(
        900.0, "The history reports a job that has been idle for so long; 0: never.", ge=0
    )
    stop_after_s: float = setting(
        0.0, "A job that has been idle for so long is ended as failed, `idle`; 0: never.", ge=0
    )
    exempt_projects: tuple[str, ...] = setting(
        (), "Projects with jobs that are reported as idle, but never ended for that."
    )


@dataclass(frozen=True, kw_only=True)
class LearningSettings:
    """Throughputs that are measured while jobs run."""

    learn: bool = setting(True, "Let measured throughputs replace declared and estimated ones.")
    least_s: float = setting(5.0, "Shortest stretch of running that counts as a measurement.", gt=0)
    tolerance: float = setting(
        0.05, "Smallest relative change of a throughput that is passed to the policy.", gt=0
    )


@dataclass(frozen=True, kw_only=True)
class UidSettings:
    """Under which uids jobs run on nodes that keep owners apart."""

    first_uid: int = setting(
        1_900_000_000,  # systemd leaves these numbers unused: https://systemd.io/UIDS-GIDS
        "First uid of jobs. Owners keep their uids if it changes.",
        ge=65_536,
    )
    uids: int = setting(65_536, "How many there are, one for each owner within a project.", ge=1)


@dataclass(frozen=True, kw_only=True)
class RetentionSettings:
    """The time after which data is deleted."""

    finished_days: float = setting(
        30.0, "How long jobs that have ended are kept; inf for no limit.", gt=0, endless=True
    )
    history_days: float = setting(
        90.0, "How long lines of history are kept; inf for no limit.", gt=0, endless=True
    )
    log_bytes: int = setting(16 * 2**20, "Output kept of each attempt, node and stream.", ge=4096)
