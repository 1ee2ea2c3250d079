"""Reading the history as far as a caller may see it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from api.auth.roles import Principal, Role
from api.jobs.selection import projects_of
from api.threads import in_thread
from scheduler.control.state.node_evidence import without_jobs
from scheduler.store.queries import MAX_LIMIT, HistoryQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from api.context import Context
    from scheduler.domain.rows import HistoryRow

#: Event ids that one page looks through at most if the caller may see few of the lines.
MOST_READ = 10_000
#: Fields with the owner of a reservation.
_WHOSE: Final = frozenset({"project", "user", "job"})
#: Kinds of subjects only for administrators; kinds of their events begin with these.
SECRET_KINDS = ("token", "enrolment")
_ONE_JOB, _MANY_JOBS = ("job", "job_id"), ("jobs", "job_ids", "suspects")
#: Lists of objects that each name a job.
_ABOUT_JOBS = ("evidence",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFilter:
    """Filter of lines; empty fields match all.

    Attributes:
        subject_kind: exactly this.
        subject: exactly this.
        kinds: any of these.
        actor: by exactly this one.
        since_s: at that time or later.
        until_s: before that time.
        project: only lines about the project and its jobs.
    """

    subject_kind: str = ""
    subject: str = ""
    kinds: tuple[str, ...] = ()
    actor: str = ""
    since_s: float | None = None
    until_s: float | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReader:
    """Reads lines of history for a caller.

    Attributes:
        context: of the application.
        principal: the caller; jobs of foreign projects do not exist for it.
        wanted: which lines.
    """

    context: Context
    principal: Principal
    wanted: HistoryFilter

    async def page(
        self, *, after: int, before: int | None = None, descending: bool = False, limit: int
    ) -> tuple[list[HistoryRow], int]:
        """Return lines, and the event id up to which all lines were examined."""
        head = (await in_thread(self.context.store.head)).event_id
        end = head + 1 if before is None else min(head + 1, before)
        if not await in_thread(self._hides_lines):
            found, last, is_all = await self._lines(after, before, descending, limit)
            return found, max(last, end - 1) if is_all and not descending else last
        # The end of a page must not depend on lines that the caller may not see: it would tell of
        # which jobs, people and webhooks there are lines, and when. So a page ends at the caller's
        # own line, or after a number of ids.
        if descending:
            first = max(after, end - 1 - MOST_READ)
        else:
            first = await in_thread(self._before_asked, after, head)
            end = min(end, first + 1 + MOST_READ)
        if end <= first + 1:
            nothing = before if before is not None else after
            return [], nothing if descending else max(after, end - 1)
        found, last, _ = await self._lines(first, end, descending, limit)
        if len(found) < limit:
            last = first + 1 if descending else end - 1
        return found, last

    async def _lines(
        self, after: int, before: int | None, descending: bool, limit: int
    ) -> tuple[list[HistoryRow], int, bool]:
        """Return lines between two ids, the last id that was read, and whether no line is left."""
        found: list[HistoryRow] = []
        looked_at, last = 0, before if descending and before is not None else after
        while len(found) < limit and looked_at < MOST_READ:
            query = HistoryQuery(
                subject_kind=self.wanted.subject_kind,
                subject=self.wanted.subject,
                kinds=self.wanted.kinds,
                actor=self.wanted.actor,
                since_s=self.wanted.since_s,
                until_s=self.wanted.until_s,
                after_id=after,
                before_id=before,
                without=() if self.principal.has(Role.ADMIN) else SECRET_KINDS,
                descending=descending,
                limit=MAX_LIMIT if self._is_filtered() else limit,
            )
            rows = await in_thread(self._read, query)
            for row, seen in rows:
                last = row.event_id
                if seen is not None:
                    found.append(seen)
                    if len(found) == limit:
                        return found, last, False
            looked_at += len(rows)
            if len(rows) < query.limit:
                return found, last, True
            after, before = (after, last) if descending else (last, before)
        return found, last, False

    def _is_filtered(self) -> bool:
        return bool(self.principal.projects or self.wanted.project)

    def _hides_lines(self) -> bool:
        """Return whether the filter may match lines that the caller does not see."""
        if not self.principal.projects:
            return False
        if self.wanted.subject_kind != "job" or not self.wanted.subject:
            return True
        project = projects_of(self.context, [self.wanted.subject]).get(self.wanted.subject)
        return project is None or not self._is_asked(project)

    def _before_asked(self, after: int, head: int) -> int:
        """Return an id before all lines of the wanted time, which spares reading older ones."""
        if self.wanted.since_s is None:
            return after
        query = HistoryQuery(since_s=self.wanted.since_s, after_id=after, limit=1)
        rows = self.context.store.history(query)
        return rows[0].event_id - 1 if rows else max(after, head)

    def _read(self, query: HistoryQuery) -> list[tuple[HistoryRow, HistoryRow | None]]:
        """Return lines, each with the part that the caller may see."""
        rows = self.context.store.history(query)
        if not self._is_filtered():
            return [(row, row) for row in rows]
        projects = self._projects_of(rows)
        return [(row, self._shown(row, projects)) for row in rows]

    def _projects_of(self, rows: Sequence[HistoryRow]) -> dict[str, str]:
        """Return the projects of the jobs that lines name; other threads may do so at once."""
        return projects_of(self.context, {job_id for row in rows for job_id in _jobs_of(row)})

    def _shown(self, row: HistoryRow, projects: Mapping[str, str]) -> HistoryRow | None:
        def concerns(job_id: str) -> bool:
            return job_id in projects and self._is_asked(projects[job_id])

        if row.subject_kind == "job":
            return row if concerns(row.subject) else None
        if row.subject_kind == "project":
            return row if self._is_asked(row.subject) else None
        if row.subject_kind == "webhook":
            project = row.data.get("project")
            return row if project is not None and self._is_asked(str(project)) else None
        if self.wanted.project is not None and not any(map(concerns, _jobs_of(row))):
            return None
        data = _without_foreign(row.data, concerns)
        if row.subject_kind == "reservation" and not self._is_asked(str(data.get("project", ""))):
            data = {name: value for name, value in data.items() if name not in _WHOSE}
        return dataclasses.replace(row, data=data)

    def _is_asked(self, project: str) -> bool:
        return self.principal.sees(project) and self.wanted.project in {None, project}


def _without_foreign(data: Mapping[str, Any], concerns: Callable[[str], bool]) -> Mapping[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in data.items():
        if name in _ONE_JOB and not concerns(str(value)):
            continue
        if name in _MANY_JOBS and isinstance(value, list | tuple):
            shown[name] = [job_id for job_id in value if concerns(str(job_id))]
            continue
        if name in _ABOUT_JOBS and isinstance(value, list | tuple):
            shown[name] = [item for item in value if concerns(_job_of(item))]
            continue
        if name == "problems" and isinstance(value, dict):  # of workers, as their agent says
            shown[name] = {key: without_jobs(str(words)) for key, words in value.items()}
            continue
        shown[name] = value
    return shown


def _job_of(item: object) -> str:
    return str(item.get("job", "")) if isinstance(item, dict) else ""


def _jobs_of(row: HistoryRow) -> list[str]:
    found = [row.subject] if row.subject_kind == "job" else []
    found += [str(row.data[name]) for name in _ONE_JOB if name in row.data]
    for name in _MANY_JOBS:
        value = row.data.get(name)
        if isinstance(value, list | tuple):
            found += map(str, value)
    for name in _ABOUT_JOBS:
        value = row.data.get(name)
        if isinstance(value, list | tuple):
            found += map(_job_of, value)
    return found
