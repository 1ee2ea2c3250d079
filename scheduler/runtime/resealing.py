"""Resealing: stored secret variables and webhooks' secrets, under the first key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from scheduler.store.queries import MAX_LIMIT, JobQuery
from scheduler.webhooks.webhooks import DEFINED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.domain.rows import JobRow
    from scheduler.secret_box import SecretBox
    from scheduler.store.protocol import Store

#: Jobs that are written in one transaction.
_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Resealed:
    """The result of resealing.

    Attributes:
        jobs: how many stored jobs have secret variables.
        changed: how many of these were resealed.
        webhooks: how many webhooks were resealed.
        lost: the lost keys, and the jobs and webhooks that need them; empty if no key is lost.
    """

    jobs: int
    changed: int
    webhooks: int
    lost: str


def reseal_secrets(store: Store, box: SecretBox) -> Resealed:
    """Seal the secret variables of every stored job, and of webhooks, under the first key.

    Schedulers may run meanwhile. Their memory keeps the secrets under the old key until they are
    restarted, so keep that key until then.

    Raises:
        InputError: there is no key, or stored secrets are damaged.
    """
    jobs = changed = 0
    lost: list[tuple[str, Mapping[str, str]]] = []
    news: dict[str, Mapping[str, Any]] = {}
    for row in _rows(store):
        kept: Mapping[str, str] = row.spec.get("secret_env") or {}
        if not kept:
            continue
        jobs += 1
        if box.lost([(row.job_id, kept)]):
            lost.append((row.job_id, kept))
            continue
        anew = box.resealed(kept, row.job_id)
        if anew is not None:
            changed += 1
            news[row.job_id] = {**row.spec, "secret_env": anew}
        if len(news) >= _BATCH:
            store.replace_specs(news)
            news = {}
    store.replace_specs(news)
    webhooks = _reseal_webhooks(store, box, lost)
    return Resealed(jobs=jobs, changed=changed, webhooks=webhooks, lost=box.lost(lost))


def _reseal_webhooks(
    store: Store, box: SecretBox, lost: list[tuple[str, Mapping[str, str]]]
) -> int:
    news = []
    for row in store.settings(DEFINED):
        kept = row.value["sealed"]
        if box.lost([(row.key, kept)]):
            lost.append((row.key, kept))
            continue
        anew = box.resealed(kept, row.key)
        if anew is not None:
            news.append(replace(row, value={**row.value, "sealed": anew}))
    store.write_settings(tuple(news), token=None)
    return len(news)


def _rows(store: Store) -> Iterator[JobRow]:
    cursor = None
    while True:
        page = store.jobs(JobQuery(limit=MAX_LIMIT, cursor=cursor))
        yield from page.rows
        cursor = page.next_cursor
        if cursor is None:
            return
