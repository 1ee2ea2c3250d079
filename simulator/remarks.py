"""Remarks that readers of a run's figures must know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.control.leases.launches import LONG_LAUNCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.control.facts.requests import Acted
    from scheduler.domain.facts.commands import RecordEvent

#: Most different warnings of a policy that are shown; the others are counted.
_SHOWN = 3
#: Most jobs that a remark names.
_NAMED = 20


class Remarks:
    """Collects failed solves, refused jobs and warnings of the policy during a run."""

    def __init__(self) -> None:
        self._failed: list[str] = []
        self._refused: list[tuple[str, str]] = []
        self._said: list[str] = []
        self._vain: list[str] = []
        self._warned: dict[str, int] = {}

    def take(self, event: RecordEvent) -> None:
        """Add an entry of the engine's history."""
        if event.kind == "allocation_failed":
            self._failed.append(str(event.data.get("reason", "")))
        elif event.kind == "job_refused":
            self._refused.append((event.subject, str(event.data.get("reason", ""))))
        elif event.kind == "policy_warning":
            text = str(event.data.get("text", ""))
            self._warned[text] = self._warned.get(text, 0) + 1

    def refused(self, job_id: str, reason: str) -> None:
        """Add the refusal of a submitted job."""
        self._refused.append((job_id, reason))

    def window(self, window: tuple[int, int] | None, jobs: int) -> None:
        """Add a remark if the window exceeds the number of jobs."""
        if window is not None and window[1] > jobs:
            self._said.append(
                f"the window {window[0]}:{window[1]} goes beyond the {jobs} jobs of the trace; "
                f"{jobs - window[0]} are measured"
            )

    def projects(self, limited: Iterable[str], known: Iterable[str]) -> None:
        """Add a remark for each project that has limits but no jobs in the trace."""
        names = sorted(set(known))
        for name in sorted(set(limited) - set(names)):
            self._said.append(
                f"no job of the trace is project '{name}'s, which has limits; its projects are "
                f"{', '.join(names)}"
            )

    def stuck(self, waiting: Mapping[str, str]) -> None:
        """Add which jobs can never end, and why: job id -> reason."""
        reasons: dict[str, list[str]] = {}
        for job_id, why in waiting.items():
            reasons.setdefault(why.replace("_", " "), []).append(job_id)
        for why, names in reasons.items():
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            self._said.append(
                f"the run ends before these jobs do, since they would wait without end ({why}): "
                f"{', '.join(names[:_NAMED])}{more}"
            )

    def acted(self, at_s: float, results: Sequence[Acted]) -> None:
        """Add the errors of an order that concerns jobs."""
        self._vain += [f"at {at_s:g} s, {one.error}" for one in results if one.error]

    def refused_order(self, at_s: float, why: str) -> None:
        """Add the refusal of an order; it may depend on the state at that time."""
        self._vain.append(f"at {at_s:g} s, {why}")

    def sentences(self, policy: str, solves: int, launching: float = 0.0) -> tuple[str, ...]:
        """Return a sentence for each remark, the most serious first.

        Args:
            policy: its name.
            solves: allocations computed.
            launching: part of the worker-seconds under leases that launches and restores took.
        """
        found = []
        if self._failed:
            found.append(
                f"policy '{policy}' failed in {len(self._failed)} of {solves} solves, and the last "
                f"good allocation stayed in force; the first time: {self._failed[0]}"
            )
        if self._refused:
            job_id, reason = self._refused[0]
            more = f" (and {len(self._refused) - 1} more)" if len(self._refused) > 1 else ""
            found.append(f"job '{job_id}' was refused{more}: {reason}")
        if launching > LONG_LAUNCHES:
            found.append(
                f"launches and restores took {launching:.0%} of the time that jobs held workers; "
                "longer rounds would reduce that"
            )
        found += self._said
        if self._vain:
            more = f" (and {len(self._vain) - 1} more)" if len(self._vain) > 1 else ""
            found.append(f"an order could not be carried out{more}: {self._vain[0]}")
        shown = list(self._warned.items())[:_SHOWN]
        found += [f"policy '{policy}' warned {count} times: {text}" for text, count in shown]
        if len(self._warned) > _SHOWN:
            found.append(f"policy '{policy}' gave {len(self._warned) - _SHOWN} other warnings")
        return tuple(found)
