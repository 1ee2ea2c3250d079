"""The uids under which jobs run: one for each owner within a project, the same on all nodes.

A uid is given with the owner's first job and never given to another owner, since files on disks
belong to uids. Agents that keep owners apart use it; see ``agent.process.cells.cell``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.control.state.settings import ControlSettings
    from scheduler.control.state.transaction import Transaction

#: Projects in which one user may have jobs, ever: each takes a uid, and uids are never given back.
MOST_PROJECTS: Final = 1000
#: The prefix before the number in the keys of settings.
KEY: Final = "uid"


@dataclass(slots=True, kw_only=True)
class Owners:
    """The map. A given uid stays, even if the range of uids changes later.

    Attributes:
        uids: (project, owner) -> uid; replaced as a whole, so that views may share it.
        projects: owner -> projects in which it has one; replaced as a whole, too.
        unstored: pairs with uids that are not stored yet.
        next_uid: no uid from here on was given.
    """

    uids: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    projects: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unstored: tuple[tuple[str, str], ...] = ()
    next_uid: int = 0

    def of(self, project: str, owner: str) -> int | None:
        """Return an owner's uid; None if it has none."""
        return self.uids.get((project, owner))

    def uid_fault(self, project: str, owner: str, settings: ControlSettings) -> str:
        """Return why an owner cannot get a uid; empty if it has one, or can."""
        if (project, owner) in self.uids:
            return ""
        if self.projects.get(owner, 0) >= MOST_PROJECTS:
            return (
                f"project is '{project}', and jobs of '{owner}' have been in {MOST_PROJECTS} "
                "projects, the most of one user; use one of these"
            )
        if self._next(settings) < settings.first_uid + settings.uids:
            return ""
        return (
            f"there is no uid left for jobs of '{owner}' in project '{project}'; have "
            f"isolation.uids raised, which is {settings.uids}"
        )

    def give(self, pairs: Iterable[tuple[str, str]], settings: ControlSettings) -> None:
        """Give uids to owners that have none, in this order, as far as uids are left."""
        first, end = self._next(settings), settings.first_uid + settings.uids
        new = dict.fromkeys(pair for pair in pairs if pair not in self.uids)
        given = dict(zip(new, range(first, end), strict=False))
        if given:
            self.uids = MappingProxyType({**self.uids, **given})
            counted = Counter(owner for _, owner in given)
            self.projects = MappingProxyType(Counter(self.projects) + counted)
            self.next_uid = first + len(given)
            self.unstored += tuple(given)

    @classmethod
    def of_settings(cls, stored: Mapping[str, Any]) -> Owners:
        """Return the owners from stored settings; values by key."""
        uids = {}
        for key, value in stored.items():
            kind, _, number = key.partition("/")
            if kind == KEY:
                uids[str(value["project"]), str(value["owner"])] = int(number)
        last = max(uids.values(), default=-1)
        projects = MappingProxyType(Counter(owner for _, owner in uids))
        return cls(uids=MappingProxyType(uids), projects=projects, next_uid=last + 1)

    def store(self, transaction: Transaction) -> None:
        """Store new uids with a decision."""
        for project, owner in self.unstored:
            number = self.uids[project, owner]
            transaction.set(f"{KEY}/{number}", {"project": project, "owner": owner})
        self.unstored = ()

    def _next(self, settings: ControlSettings) -> int:
        return max(self.next_uid, settings.first_uid)
