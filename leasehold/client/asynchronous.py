"""The methods of the client, as coroutines. ``leasehold.client.blocking`` has the same ones."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import time
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

from leasehold.client.cluster import ClusterCalls
from leasehold.client.errors import ClientError, UnsendableError
from leasehold.client.exchange import BUSY, Exchange, Patience
from leasehold.client.outages import delay_s
from leasehold.client.paths import Named, path_of
from leasehold.client.streams import LogEnd, LogPiece, LogReader, read_events
from leasehold.client.wires import AsyncWire
from leasehold.connection import find_connection, usable_token
from leasehold.naming import meanings, send_for_words

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from leasehold.client import forms
    from leasehold.client.wires import Wire

T = TypeVar("T")

#: A job in one of these states does not run again unless a user requeues it.
ENDED: Final = frozenset({"completed", "cancelled", "failed", "refused"})
#: Default number of jobs of one page of a list.
_PAGE: Final = 500


class AsyncClient(ClusterCalls):
    """Talks to a scheduler, from a program with an event loop.

    A job is named by its id, the beginning of its id, or its name, as on the command line. A word
    that means several jobs raises ``AmbiguousNameError``, a ValueError. A refused request raises
    ``ClientError``.

    Args:
        server: its address, or several with spaces between them: standbys are asked in turn. By
            default ``LEASEHOLD_SERVER``, ``client.toml``, else this machine.
        token: bearer token; empty: no token is sent. By default ``LEASEHOLD_TOKEN``, that of
            ``client.toml``, else the token file of this user's scheduler on this machine.
        patience_s: how long a call is retried while no scheduler answers.
        timeout_s: for one answer.
        context: certificates to trust, for https. Unless given, ``LEASEHOLD_CA_FILE`` or that of
            ``client.toml``, else the system's.

    Raises:
        SettingsError: an address, a token or ``client.toml`` cannot be used; a ValueError.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        patience_s: float = 60.0,
        timeout_s: float = 30.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        patience = Patience.of(patience_s, timeout_s=timeout_s)
        self._exchange = found_exchange(
            server, token=token, patience=patience, context=context, wire=AsyncWire()
        )

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(
        self, *, name: str, command: Sequence[str], **fields: Unpack[forms.JobOptions]
    ) -> str:
        """Submit a job and return its id.

        Args:
            name: your name for the job.
            command: program and arguments; no shell sees it.
            fields: further fields of the job. With ``client_id``, your own id, submitting the same
                job again returns the first one.

        Raises:
            ClientError: the job cannot be used or can never run.
            TypeError: ``command`` is one string.
        """
        if isinstance(command, str | bytes):
            raise TypeError(
                f"command is {command!r}; give a list of the program and its arguments, such as "
                "['python', 'train.py']"
            )
        key = fields.get("client_id") or uuid.uuid4().hex
        body = {"name": name, "command": list(command), **fields, "client_id": key}
        made: forms.Submitted = await self.call("POST", "/jobs", body, key=key)
        return made["job_id"]

    async def submit_all(self, jobs: Sequence[forms.JobIn]) -> list[forms.SubmittedItem]:
        """Submit up to 1,000 jobs at once; each item of the answer has ``job_id`` or ``error``."""
        body = {"jobs": [dict(job) for job in jobs]}
        made: forms.Batch = await self.call("POST", "/jobs", body)
        return made["jobs"]

    async def submit_one(self, job: forms.JobIn) -> forms.Submitted:
        """Submit a job under its ``client_id``; the answer says whether it was known already."""
        key = job.get("client_id") or uuid.uuid4().hex
        made: forms.Submitted = await self.call("POST", "/jobs", {**job, "client_id": key}, key=key)
        return made

    async def dry_run(self, *, forecast: bool = False, **fields: Unpack[forms.JobIn]) -> forms.Fit:
        """Return whether and where a job with these fields could run; change nothing.

        Args:
            forecast: whether a replay also says when it would start and complete.
            fields: of the job.
        """
        how = {"dry_run": True} | ({"forecast": True} if forecast else {})
        found: forms.Fit = await self.call("POST", "/jobs", fields, params=how)
        return found

    async def dry_run_all(self, jobs: Sequence[forms.JobIn]) -> list[forms.FitItem]:
        """Return whether and where up to 1,000 jobs could run; change nothing."""
        body = {"jobs": [dict(job) for job in jobs]}
        found: forms.BatchFit = await self.call("POST", "/jobs", body, params={"dry_run": True})
        return found["jobs"]

    async def upload(self, archive: bytes, *, project: str | None = None) -> str:
        """Upload code for jobs of a project; stored code is not sent again.

        Args:
            archive: a tar file of plain files and folders that gzip has compressed.
            project: project of the code; by default that of a job without a project.

        Returns:
            its hash, which jobs name as their ``upload``.
        """
        digest = hashlib.sha256(archive).hexdigest()
        try:
            await self.find_upload(digest, project=project)
        except ClientError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            text = base64.b64encode(archive).decode()
            await self.keep_upload(digest, archive=text, project=project)
        return digest

    async def find_upload(
        self, digest: str, **query: Unpack[forms.FindUploadQuery]
    ) -> forms.Upload:
        """Return a stored upload, by its hash."""
        found: forms.Upload = await self.call("GET", _upload_path(digest), params=query)
        return found

    async def keep_upload(self, digest: str, **fields: Unpack[forms.UploadIn]) -> forms.Upload:
        """Upload code in the form of the REST interface; ``upload`` does so if needed."""
        found: forms.Upload = await self.call("PUT", _upload_path(digest), fields)
        return found

    async def job(self, job_id: str) -> forms.JobWithSpec:
        """Return a job with its specification."""
        found: forms.JobWithSpec = await self._of_job(job_id)
        return found

    async def jobs(self, **filters: Unpack[forms.ListJobsQuery]) -> AsyncGenerator[forms.Job]:
        """Yield jobs, newest first unless sorted otherwise; pages are requested as needed.

        Raises:
            ClientError: a filter cannot be used.
        """
        async for job in self._jobs_from(filters, await self._first_jobs(filters)):
            yield job

    async def ids_of(self, word: str) -> list[str]:
        """Return the ids of the jobs that a word means: one job, or all elements of an array.

        Raises:
            ClientError: the word means no job.
            AmbiguousNameError: the word means several jobs that are not elements of one array.
        """
        try:
            found: forms.JobWithSpec = await self.call("GET", job_path(word))
        except ClientError as error:
            if error.status != 404:
                raise
            if ids := await meanings(word, self._page_of_jobs):
                return list(ids)
            raise
        return [found["job_id"]]

    async def job_page(self, **query: Unpack[forms.ListJobsQuery]) -> forms.JobPage:
        """Return one page of the list of jobs."""
        found: forms.JobPage = await self.call("GET", "/jobs", params=query)
        return found

    async def _first_jobs(self, filters: forms.ListJobsQuery) -> forms.JobPage:
        """Return the first page of a list that is read to its end."""
        asked: forms.ListJobsQuery = {**filters, "limit": _PAGE}
        return await self.job_page(**asked)

    async def _jobs_from(
        self, filters: forms.ListJobsQuery, page: forms.JobPage
    ) -> AsyncGenerator[forms.Job]:
        """Yield the jobs of a page and of the pages after it."""
        while True:
            for job in page["jobs"]:
                yield job
            if page["next_cursor"] is None:
                return
            further: forms.ListJobsQuery = {
                **filters,
                "limit": _PAGE,
                "cursor": page["next_cursor"],
            }
            page = await self.job_page(**further)

    async def cancel(self, job_id: str, *, reason: str = "") -> bool:
        """Cancel a job; False if it had ended already."""
        try:
            return await self._act_on_job(job_id, "cancel", reason)
        except ClientError as error:
            if error.status == 409:
                return False
            raise

    async def hold(self, job_id: str, *, reason: str = "") -> bool:
        """Keep a job from running until it is released; False if it was held."""
        return await self._act_on_job(job_id, "hold", reason)

    async def release(self, job_id: str, *, reason: str = "") -> bool:
        """Let a held job run again; False if it was not held."""
        return await self._act_on_job(job_id, "release", reason)

    async def requeue(self, job_id: str, *, reason: str = "") -> bool:
        """Stop a job and queue it again, also one that has ended; False if it waits."""
        return await self._act_on_job(job_id, "requeue", reason)

    async def act(
        self,
        action: forms.JobAction,
        *,
        ids: Sequence[str] | None = None,
        selector: forms.SelectorIn | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> forms.Bulk:
        """Apply an action to many jobs, named by ids or by a selector.

        Args:
            action: ``cancel``, ``hold``, ``release`` or ``requeue``.
            ids: of the jobs, or beginnings of ids, or names.
            selector: instead: ``status``, ``project``, ``job_type``, ``name``, ``owner``,
                ``labels``.
            reason: why; the history keeps it.
            dry_run: only report the outcome for each job.
        """
        # A server of the previous release knows neither.
        how = {name: value for name, value in (("reason", reason), ("dry_run", dry_run)) if value}
        body = {"action": action, **how}
        # Repeating it is harmless, except for a job that has begun again meanwhile.
        return await self._in_bulk(
            "POST", "/jobs:act", body, ids, selector, repeatable=action != "requeue"
        )

    async def change(self, job_id: str, **fields: Unpack[forms.ChangeIn]) -> bool:
        """Change ``weight`` or ``deadline_s`` (None: no deadline) of a job; False if as before."""
        acted: forms.Acted = await self._of_job(job_id, method="PATCH", body=fields)
        return acted["changed"]

    async def change_all(
        self,
        *,
        ids: Sequence[str] | None = None,
        selector: forms.SelectorIn | None = None,
        **fields: Unpack[forms.ChangeIn],
    ) -> forms.Bulk:
        """Change ``weight`` or ``deadline_s`` of many jobs, named by ids or by a selector."""
        return await self._in_bulk("PATCH", "/jobs", dict(fields), ids, selector)

    async def explain(
        self, job_id: str, **query: Unpack[forms.ExplainJobQuery]
    ) -> forms.Explanation:
        """Return the reasons of a job's state, possible changes, and expected times."""
        found: forms.Explanation = await self._of_job(job_id, "explain", params=query)
        return found

    async def begin_exec(self, job_id: str, **asked: Unpack[forms.ExecIn]) -> forms.Exec:
        """Run a ``command`` beside a job; not retried if the answer is lost."""
        begun: forms.Exec = await self._of_job(
            job_id, "exec", method="POST", body=asked, repeatable=False
        )
        return begun

    async def read_exec(
        self, job_id: str, exec_id: str, *, after: int = 0, wait_s: float = 0.0
    ) -> forms.ExecOutput:
        """Return a command's output from a piece on, and how it ended."""
        found: forms.ExecOutput = await self._of_job(
            job_id,
            "exec",
            Named("command's id", exec_id),
            params={"after": after, "wait_s": wait_s},
        )
        return found

    async def end_exec(self, job_id: str, exec_id: str) -> None:
        """End a command."""
        await self._of_job(job_id, "exec", Named("command's id", exec_id), method="DELETE")

    async def attempts(self, job_id: str) -> list[forms.Attempt]:
        """Return a job's leases, oldest first."""
        found: forms.Attempts = await self._of_job(job_id, "attempts")
        return found["attempts"]

    async def job_events(
        self, job_id: str, **query: Unpack[forms.ListJobEventsQuery]
    ) -> forms.EventPage:
        """Return a page of a job's history, oldest first."""
        found: forms.EventPage = await self._of_job(job_id, "events", params=query)
        return found

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> forms.JobWithSpec:
        """Return a job after it has ended, across restarts of the scheduler.

        Raises:
            TimeoutError: it has not ended within ``timeout_s``.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        looks, word = 1, job_id
        while True:
            job = None
            try:
                job = await self.job(job_id)
            except ClientError as error:
                if error.status and error.status not in BUSY:
                    raise
            if job is not None and job["status"] in ENDED:
                return job
            if job is not None:
                job_id = job["job_id"]  # a later job may have the name
            pause_s = delay_s(looks)
            if until_s is not None and time.monotonic() + pause_s > until_s:
                raise TimeoutError(f"job '{word}' has not ended within {timeout_s:g} s")
            await self._exchange.wire.sleep(pause_s)
            looks += 1

    async def log(
        self, job_id: str, *, stream: str = "both", attempt: int | None = None, tail_bytes: int = 0
    ) -> bytes:
        """Return a job's output, by default of its newest attempt.

        Args:
            job_id: the job.
            stream: ``out``, ``err`` or ``both``.
            attempt: 1 for the first.
            tail_bytes: only so many last bytes of each stream; 0 for all.
        """
        params = {"stream": stream, "attempt": attempt, "tail_bytes": tail_bytes or None}

        async def read(found: str) -> bytes:
            path = f"/v1{job_path(found, 'log')}"
            return (await self._exchange.ask("GET", path, params=params)).content

        return await self._on_job(job_id, read)

    async def log_pieces(
        self,
        job_id: str,
        *,
        stream: str = "both",
        attempt: int | None = None,
        tail_bytes: int | None = None,
        follow: bool = False,
        seen: Mapping[tuple[int, str, str], int] | None = None,
    ) -> AsyncGenerator[LogPiece | LogEnd]:
        """Yield a job's output, piece by piece, across breaks of the connection.

        Args:
            job_id: the job.
            stream: ``out``, ``err`` or ``both``.
            attempt: 1 for the first; all of them unless given.
            tail_bytes: of the newest attempt, only so many last bytes of each stream.
            follow: go on until the job has ended and all of its output has arrived.
            seen: (attempt, node, stream) -> offset after the known part, to continue from.

        Returns:
            pieces, and finally the information about the end.
        """
        found = (await self.job(job_id))["job_id"]
        reader = LogReader(
            self._exchange,
            f"/v1{job_path(found, 'log')}",
            attempt=attempt,
            stream=stream,
            follow=follow,
            seen=seen,
        )
        async for piece in reader.pieces(tail_bytes):
            yield piece

    # -- the history ------------------------------------------------------------------------------

    async def history(self, **query: Unpack[forms.ListEventsQuery]) -> forms.EventPage:
        """Return a page of the history, oldest first unless ``descending``."""
        found: forms.EventPage = await self.call("GET", "/events", params=query)
        return found

    async def events(self, **filters: Unpack[forms.ListEventsQuery]) -> AsyncGenerator[forms.Event]:
        """Yield lines of the history as they are written, without end; each one once.

        Begins after the event id ``after``; by default with the next event.

        Raises:
            ClientError: a filter cannot be used.
        """
        async for event in self._events_from(filters, await self._first_event(filters)):
            yield event

    async def _first_event(self, filters: forms.ListEventsQuery) -> int:
        """Return the event id after which a stream begins; checks the filters at once."""
        asked: forms.ListEventsQuery = {**filters, "after": None, "descending": True, "limit": 1}
        newest = (await self.history(**asked))["last_event_id"]
        after = filters.get("after")
        return newest if after is None else after

    async def _events_from(
        self, filters: forms.ListEventsQuery, after: int
    ) -> AsyncGenerator[forms.Event]:
        """Yield the lines after an event id."""
        params = {**filters, "after": None}
        async for event in read_events(self._exchange, "/v1/events", params, after=after):
            yield cast("forms.Event", event)

    # -- finding the job of a word ----------------------------------------------------------------

    async def _of_job(
        self,
        word: str,
        *rest: str | Named,
        method: str = "GET",
        body: object = None,
        params: Mapping[str, Any] | None = None,
        repeatable: bool = True,
    ) -> Any:
        """Make a request beneath the path of the job that a word means."""

        async def ask(job_id: str) -> Any:
            return await self.call(
                method, job_path(job_id, *rest), body, params=params, repeatable=repeatable
            )

        return await self._on_job(word, ask)

    async def _act_on_job(self, job_id: str, action: forms.JobAction, reason: str) -> bool:
        acted: forms.Acted = await self._of_job(
            job_id,
            action,
            method="POST",
            body={"reason": reason} if reason else None,
            repeatable=action != "requeue",
        )
        return acted["changed"]

    async def _in_bulk(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        ids: Sequence[str] | None,
        selector: forms.SelectorIn | None,
        *,
        repeatable: bool = True,
    ) -> forms.Bulk:
        given = {"ids": ids and list(dict.fromkeys(ids)), "selector": selector}
        which = {name: value for name, value in given.items() if value}

        async def send(which: dict[str, Any]) -> dict[str, Any]:
            found: dict[str, Any] = await self.call(
                method, path, {**body, **which}, repeatable=repeatable
            )
            return found

        return cast("forms.Bulk", await send_for_words(which, send, self._page_of_jobs))


def found_exchange(
    server: str | None,
    *,
    token: str | None,
    patience: Patience,
    context: ssl.SSLContext | None,
    wire: Wire,
) -> Exchange:
    """Return the exchange with a scheduler for a program's arguments; see ``AsyncClient``."""
    found = find_connection(server=server, server_origin="the argument 'server'")
    if token is None:
        return Exchange(
            found,
            patience=patience,
            wire=wire,
            context=context,
            look_again=lambda: find_connection(server=" ".join(found.servers)),
        )
    shown = dataclasses.replace(found, token=usable_token(token, "the argument 'token'"))
    return Exchange(shown, patience=patience, wire=wire, context=context)


def _upload_path(digest: str) -> str:
    return path_of("uploads", Named("upload", digest))


def job_path(job_id: str, *rest: str | Named) -> str:
    """Return the path of a job, or of a part of it.

    Raises:
        UnsendableError: no job can have this id.
    """
    if job_id == "":
        raise UnsendableError("the job id is empty; `leasehold jobs` lists them")
    return path_of("jobs", Named("job", job_id), *rest)
