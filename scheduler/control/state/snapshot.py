"""A snapshot of control: the engine, and the state of leases that no row holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.engine.snapshot import dump

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.state.state import ControlState
    from scheduler.domain.facts.commands import ComputeAllocation
    from scheduler.engine.snapshot import EngineState

#: Version of the part of a snapshot besides the engine's.
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """A state as of one moment, copied but not yet encoded.

    Attributes:
        engine: the engine's part.
        control: deadlines, revocations and timers; plain values.
        question: the engine's open question, or None.
    """

    engine: EngineState
    control: Mapping[str, Any]
    question: ComputeAllocation | None


def take_snapshot(state: ControlState) -> Taken:
    """Copy the values for a snapshot; quick, so that turns need not wait."""
    leases = [
        [
            *(lease_id, live.deadline_s, live.revoked, live.base_steps, live.promised_s),
            *(live.plan, live.learned, live.cause.to_data()),
            None if live.notice is None else live.notice.to_data(),
            *([list(live.paces)] if live.paces else []),
        ]
        for lease_id, live in state.leases.by_id.items()
    ]
    control = {
        "version": VERSION,
        "timers": dict(state.leases.timers),
        "leases": leases,
        "newest_number": state.policy.newest_number,
    }
    return Taken(engine=dump(state.engine), control=control, question=state.leases.question)
