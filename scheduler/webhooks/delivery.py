"""Delivery of webhooks: by the leader alone, in order for each webhook.

A webhook reads the history from its cursor. It continues with the next line when the receiver has
taken the one before, and the cursor is stored. After a crash some lines are sent again, under the
same ids, and no line is left out. No decision waits for any of this.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler.domain.rows import HistoryRow, SettingRow
from scheduler.errors import (
    AdmissionError,
    ConflictError,
    InputError,
    NotFoundError,
    NotLeadingError,
    StaleLeaderError,
    StoreError,
)
from scheduler.store.queries import HistoryQuery
from scheduler.webhooks.messages import TEST, Template, message_of, new_secret
from scheduler.webhooks.webhooks import (
    DEFINED,
    MOST,
    MOST_OF_ONE,
    NO_KEY,
    STANDS,
    NoPost,
    Posted,
    Webhook,
    WebhookRules,
    WebhookState,
    WebhookView,
    key_of,
    place_of,
    stored_webhooks,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scheduler.clock import Clock
    from scheduler.domain.rows import JobRow
    from scheduler.secret_box import SecretBox
    from scheduler.store.protocol import Store
    from scheduler.views.metrics import Metrics
    from scheduler.webhooks.webhooks import Post

T = TypeVar("T")
_log = logging.getLogger("leasehold.webhooks")

#: Lines that are read at once, and how many lines a webhook may skip before its cursor is stored.
_PAGE, _PASSED = 100, 1000
#: Longest wait for news, and the wait after a failure of our own.
_NEWS_S, _AGAIN_S = 60.0, 5.0
#: So many failures in a row make a line of history.
_TOLD_AFTER: Final = 5
_GONE: Final = 410
_LONGEST_PROBLEM: Final = 300


class _Sender:
    """A served webhook: its definition, its state, and the task that sends."""

    def __init__(self, view: WebhookView) -> None:
        self.webhook = view.webhook
        self.state = view.state
        self.saved = view.state
        self.saved_s = 0.0
        #: set when a user has resumed it.
        self.wake = asyncio.Event()
        self.saving = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None


class Webhooks:
    """Keeps webhooks and sends their messages.

    Args:
        store: the store of webhooks and history.
        clock: the time.
        box: seals their addresses and secrets.
        metrics: the counters.
        news: waits for lines of history above an event id, for some seconds at most.
        note: appends a line of history.
        post: sends messages.
        rules: times of delivery.
        draw: from 0 to 1, so that webhooks do not all retry at the same moment.
        leader: raises if this process does not lead, and names the leader.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        box: SecretBox,
        metrics: Metrics | None,
        *,
        news: Callable[[int, float], Awaitable[int]],
        note: Callable[..., Awaitable[None]],
        post: Post | None = None,
        rules: WebhookRules | None = None,
        draw: Callable[[], float] = random.random,
        leader: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._box = box
        self._metrics = metrics
        self._news = news
        self._note = note
        self._post: Post = post or NoPost()
        self._rules = rules or WebhookRules()
        self._draw = draw
        self._leader = leader
        self._token: int | None = None
        self._senders: dict[str, _Sender] = {}
        self._changing = asyncio.Lock()
        # Its own threads: other work must not wait while webhooks read the store.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="webhooks")

    # -- leading ----------------------------------------------------------------------------------

    async def run(self, token: int) -> None:
        """Send for as long as this process leads under ``token``; until cancelled."""
        try:
            await self._begin(token)
            while True:
                self._measure()
                await asyncio.sleep(_AGAIN_S)
        finally:
            await self._end()

    async def _begin(self, token: int) -> None:
        while True:
            try:
                found = await self._aside(stored_webhooks, self._store)
                break
            except (StoreError, LookupError, ValueError) as error:
                _log.warning("webhooks could not be read, trying again: %s", error)
                await asyncio.sleep(_AGAIN_S)
        self._token = token
        for view in found:
            self._serve(_Sender(view))
        lost = self._box.lost(
            (f"webhook {view.webhook.key}", view.webhook.sealed) for view in found
        )
        if lost:
            _log.error("%s", lost)

    def _serve(self, sender: _Sender) -> None:
        self._senders[sender.webhook.key] = sender
        sender.task = asyncio.create_task(self._follow(sender))

    async def _end(self) -> None:
        senders, self._senders = list(self._senders.values()), {}
        tasks = [sender.task for sender in senders if sender.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sender in senders:
            try:
                await self._save(sender)
            except StoreError as error:  # later messages are sent again
                _log.warning("webhook '%s': %s", sender.webhook.name, error)
        self._token = None

    def _measure(self) -> None:
        if self._metrics is not None:
            words = [sender.state.word for sender in self._senders.values()]
            self._metrics.set_webhooks(
                {word: words.count(word) for word in ("ok", "failing", "paused")}
            )

    # -- requests of people -----------------------------------------------------------------------

    async def all(self) -> tuple[WebhookView, ...]:
        """Return every webhook by name; on a standby as they are stored."""
        if self._token is None:
            return await self._aside(stored_webhooks, self._store)
        return tuple(
            WebhookView(webhook=sender.webhook, state=sender.state)
            for _, sender in sorted(self._senders.items())
        )

    async def add(
        self,
        name: str,
        url: str,
        *,
        on: tuple[str, ...],
        project: str | None,
        template: Template,
        actor: str,
        counted: bool = False,
    ) -> tuple[WebhookView, str]:
        """Create a webhook, which receives events from now on.

        Args:
            name: of the webhook, unique in its project.
            url: the address that it sends to.
            on: kinds of lines of history.
            project: only events of this project; None for all.
            template: the format of messages.
            actor: the user that creates it.
            counted: whether the number of this user's webhooks is limited.

        Returns:
            The webhook, and the secret of its signatures, which is shown only this once.

        Raises:
            InputError: the address cannot be used.
            AdmissionError: there are too many, or there is no key to seal with.
            ConflictError: the name is in use in this project.
        """
        async with self._changing:
            token = self._asked()
            self._check_room(name, project, actor if counted else None)
            if not self._box.can_seal:
                raise AdmissionError(NO_KEY)
            await self._post.check(url)
            secret, now_s, key = new_secret(), self._clock.now_s(), key_of(name, project)
            webhook = Webhook(
                key=key,
                name=name,
                hook_id=f"whk_{secrets.token_hex(8)}",
                on=on,
                project=project,
                template=template,
                place=place_of(url),
                sealed=self._box.seal({"url": url, "secret": secret}, DEFINED + key),
                created_s=now_s,
                actor=actor,
            )
            head = await self._aside(self._store.head)
            sender = _Sender(WebhookView(webhook=webhook, state=WebhookState(cursor=head.event_id)))
            rows = webhook.row(), sender.state.row(key, now_s=now_s)
            await self._aside(partial(self._store.write_settings, rows, token=token))
            self._leading()
            self._serve(sender)
        data = {"on": list(on), "project": project, "place": webhook.place}
        await self._note("webhook_created", "webhook", name, actor=actor, data=data)
        return WebhookView(webhook=webhook, state=sender.state), secret

    def _check_room(self, name: str, project: str | None, actor: str | None) -> None:
        known = (sender.webhook for sender in self._senders.values())
        taken = any((hook.name, hook.project) == (name, project) for hook in known)
        if taken or key_of(name, project) in self._senders:
            where = "for all projects" if project is None else f"of project '{project}'"
            raise ConflictError(
                f"there is a webhook '{name}' {where} already; delete it, or name another"
            )
        if len(self._senders) >= MOST:
            raise AdmissionError(f"there are {MOST} webhooks, which is the most; delete some")
        own = sum(sender.webhook.actor == actor for sender in self._senders.values())
        if actor is not None and own >= MOST_OF_ONE:
            raise AdmissionError(
                f"'{actor}' has {own} webhooks, the most for a user without role operator; "
                "delete some"
            )

    async def delete(self, key: str, *, actor: str) -> None:
        """Delete a webhook; its unsent messages are dropped.

        Raises:
            NotFoundError: no webhook has that key.
        """
        async with self._changing:
            token, sender, now_s = self._asked(), self._sender(key), self._clock.now_s()
            if sender.task is not None:
                sender.task.cancel()
                await asyncio.gather(sender.task, return_exceptions=True)
            rows = tuple(
                SettingRow(key=kind + key, value=None, updated_s=now_s)
                for kind in (DEFINED, STANDS)
            )
            try:
                await self._aside(partial(self._store.write_settings, rows, token=token))
            except BaseException:
                self._serve(sender)
                raise
            self._senders.pop(key, None)
        data = {"project": sender.webhook.project}
        await self._note("webhook_deleted", "webhook", sender.webhook.name, actor=actor, data=data)

    async def resume(self, key: str, *, actor: str, skip: bool = False) -> WebhookView:
        """Send again, at once.

        Args:
            key: of the webhook.
            actor: the user that asks.
            skip: whether events until now are skipped.

        Raises:
            NotFoundError: no webhook has that key.
        """
        async with self._changing:
            self._asked()
            sender = self._sender(key)
            cursor = sender.state.cursor
            if skip:
                cursor = (await self._aside(self._store.head)).event_id
            sender.state = WebhookState(
                cursor=cursor,
                delivered=sender.state.delivered,
                delivered_s=sender.state.delivered_s,
            )
            await self._save(sender)
            sender.wake.set()
        data = {"project": sender.webhook.project, "skipped": skip}
        await self._note("webhook_resumed", "webhook", sender.webhook.name, actor=actor, data=data)
        return WebhookView(webhook=sender.webhook, state=sender.state)

    async def test(self, key: str, *, actor: str) -> Posted:
        """Send one message that is marked as a test; changes nothing.

        Raises:
            NotFoundError: no webhook has that key.
        """
        self._asked()
        sender, now_s = self._sender(key), self._clock.now_s()
        name = sender.webhook.name
        row = HistoryRow(
            at_s=now_s, kind=TEST, subject_kind="webhook", subject=name, actor=actor, data={}
        )
        return await self._post_of(sender.webhook, row, None)

    def _asked(self) -> int:
        """Return the leader's token for a request that changes something."""
        self._leader()
        return self._leading()

    def _leading(self) -> int:
        if self._token is None:
            raise NotLeadingError
        return self._token

    def _sender(self, key: str) -> _Sender:
        found = self._senders.get(key)
        if found is None:
            raise NotFoundError(f"there is no webhook '{key}'")
        return found

    # -- sending ----------------------------------------------------------------------------------

    async def _follow(self, sender: _Sender) -> None:
        """Send events, one line after the other, until cancelled."""
        while True:
            try:
                await self._go_on(sender)
            except StaleLeaderError:
                return  # the leader sends
            except StoreError as error:
                _log.warning("webhook '%s' waits: %s", sender.webhook.name, error)
                await asyncio.sleep(_AGAIN_S)
            except Exception:  # noqa: BLE001 - other webhooks continue, and so does this one later
                _log.exception("webhook '%s' waits after a bug", sender.webhook.name)
                await asyncio.sleep(_NEWS_S)

    async def _go_on(self, sender: _Sender) -> None:
        if sender.state.paused_s is not None:
            sender.wake.clear()
            await self._save(sender)
            await sender.wake.wait()
            return
        found, last = await self._aside(self._look, sender.webhook, sender.state.cursor)
        for row, job in found:
            if not await self._deliver(sender, row, job):
                return
        if sender.state.paused_s is None and last > sender.state.cursor:
            sender.state = replace(sender.state, cursor=last)
        passed = sender.state.cursor - sender.saved.cursor > _PASSED
        if passed or replace(sender.state, cursor=0) != replace(sender.saved, cursor=0):
            await self._save(sender)
        await self._news(sender.state.cursor, _NEWS_S)
        await asyncio.sleep(self._rules.look_s)

    def _look(
        self, webhook: Webhook, cursor: int
    ) -> tuple[list[tuple[HistoryRow, JobRow | None]], int]:
        """Return a webhook's lines after a cursor, and the event id up to which lines were read."""
        head = self._store.head().event_id  # before the lines: no line below it comes later
        if head <= cursor:
            return [], cursor
        rows = self._store.history(HistoryQuery(kinds=webhook.on, after_id=cursor, limit=_PAGE))
        found = []
        for row in rows:
            job = self._store.job(row.subject) if row.subject_kind == "job" else None
            if not _is_of(webhook, row) and _concerns(webhook, row, job):
                found.append((row, job))
        return found, rows[-1].event_id if len(rows) == _PAGE else head

    async def _deliver(self, sender: _Sender, row: HistoryRow, job: JobRow | None) -> bool:
        """Retry until a message is taken; False if the webhook was changed or paused first."""
        while True:
            sender.wake.clear()
            posted = await self._post_of(sender.webhook, row, job)
            now_s = self._clock.now_s()
            if sender.wake.is_set():
                return False  # a user has resumed it, perhaps from another line on
            if self._metrics is not None:
                self._metrics.webhook_sent(delivered=not posted.problem)
            if not posted.problem:
                sender.state = WebhookState(
                    cursor=row.event_id, delivered=sender.state.delivered + 1, delivered_s=now_s
                )
                if now_s >= sender.saved_s + self._rules.look_s or sender.saved.failures:
                    await self._save(sender)
                return True
            if await self._failed(sender, posted, now_s):
                return False
            again_s = sender.state.next_s or now_s
            await self._clock.sleep_until(again_s, wake=sender.wake)
            if sender.wake.is_set():
                return False

    async def _failed(self, sender: _Sender, posted: Posted, now_s: float) -> bool:
        """Store a failure; return whether it pauses the webhook."""
        before, rules = sender.state, self._rules
        failures = before.failures + 1
        pause_s = min(rules.first_pause_s * 2.0 ** min(failures - 1, 30), rules.longest_pause_s)
        pause_s *= 0.5 + 0.5 * self._draw()
        pause_s = max(pause_s, min(posted.retry_after_s, rules.longest_pause_s))
        since_s = now_s if before.failing_since_s is None else before.failing_since_s
        gone = posted.status == _GONE
        over = gone or now_s - since_s >= rules.pause_after_s
        sender.state = replace(
            before,
            failures=failures,
            failing_since_s=since_s,
            problem=posted.problem[:_LONGEST_PROBLEM],
            next_s=None if over else now_s + pause_s,
            paused_s=now_s if over else None,
        )
        await self._save(sender)
        if over or failures == _TOLD_AFTER:
            data = {
                "project": sender.webhook.project,
                "failures": failures,
                "reason": sender.state.problem,
            }
            kind = "webhook_paused" if over else "webhook_failing"
            _log.warning("%s: '%s': %s", kind, sender.webhook.name, sender.state.problem)
            await self._note(kind, "webhook", sender.webhook.name, actor="", data=data)
        return over

    async def _post_of(self, webhook: Webhook, row: HistoryRow, job: JobRow | None) -> Posted:
        try:
            clear = self._box.opened(webhook.sealed, DEFINED + webhook.key)
        except InputError as error:
            return Posted(problem=str(error))
        message = message_of(row, job, hook_id=webhook.hook_id, template=webhook.template)
        headers = message.headers(clear["secret"], now_s=self._clock.wall_s())
        return await self._post.send(clear["url"], headers=headers, body=message.body)

    async def _save(self, sender: _Sender) -> None:
        async with sender.saving:
            state, now_s = sender.state, self._clock.now_s()
            if state == sender.saved:
                return
            row = state.row(sender.webhook.key, now_s=now_s)
            token = self._leading()
            await self._aside(partial(self._store.write_settings, (row,), token=token))
            sender.saved, sender.saved_s = state, now_s

    async def _aside(self, work: Callable[..., T], *given: Any) -> T:
        """Run work that waits for the database in a thread of the webhooks' own."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)


def _is_of(webhook: Webhook, row: HistoryRow) -> bool:
    """Return whether a line tells of this webhook; it does not send such lines."""
    named = row.subject_kind == "webhook" and row.subject == webhook.name
    return named and row.data.get("project") == webhook.project


def _concerns(webhook: Webhook, row: HistoryRow, job: JobRow | None) -> bool:
    """Return whether a webhook may receive a line."""
    if webhook.project is None:
        return True
    if row.subject_kind == "job":
        return job is not None and job.project == webhook.project
    if row.subject_kind == "webhook":
        return bool(row.data.get("project") == webhook.project)
    return row.subject_kind == "project" and row.subject == webhook.project
