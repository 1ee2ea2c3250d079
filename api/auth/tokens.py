"""Bearer tokens: made here, stored as hashes, and cached."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from typing import TYPE_CHECKING

from api.auth.roles import Principal, Role
from api.threads import in_thread
from scheduler.errors import StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.settings import ApiSettings
    from scheduler.store.protocol import Store
    from scheduler.store.rows import TokenRow

#: Prefixes of secrets: tokens, and one-time secrets of enrolments.
TOKEN_PREFIX, ENROLMENT_PREFIX = "lh_", "lhe_"
#: Longest secret that is examined.
LONGEST = 256
#: Time between two reports of the same token that is used after its renewal.
REUSE_TOLD_S = 3600.0
#: Unknown hashes that are remembered between two readings.
MOST_UNKNOWN = 10_000

_log = logging.getLogger("leasehold.api")


def new_secret(prefix: str = TOKEN_PREFIX) -> str:
    """Return a new secret of 32 random bytes."""
    return prefix + secrets.token_urlsafe(32)


def new_token_id(kind: str = "t") -> str:
    """Return a new public name of a token, which begins with its kind."""
    return f"{kind}-{secrets.token_hex(6)}"


def hash_secret(secret: str) -> str:
    """Return the form in which a secret is stored: SHA-256, hexadecimal.

    A plain hash is enough, since secrets are 32 random bytes and cannot be guessed.
    """
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


class Authenticator:
    """Authenticates tokens.

    All tokens are read together, and again when the cache is older than ``token_cache_s``. With
    1,000 agents that ask every second this is one query; one per token would be hundreds.

    Args:
        store: holds the tokens.
        settings: times.
        now: seconds since the Unix epoch.
        monotonic: seconds on a clock that never runs backwards.
    """

    def __init__(
        self,
        store: Store,
        settings: ApiSettings,
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._settings = settings
        self._now = now
        self._monotonic = monotonic
        self._reading = asyncio.Lock()
        #: hash -> token, as of the last reading.
        self._rows: dict[str, TokenRow] = {}
        #: token id -> token, as of the last reading.
        self._by_id: dict[str, TokenRow] = {}
        #: hashes that were looked up since then and are unknown.
        self._unknown: set[str] = set()
        self._read_at: float | None = None
        self._outdated = False
        #: token id -> time of last use, not yet written.
        self._used: dict[str, float] = {}
        #: token id -> token used after its renewal, not yet reported.
        self._reused: dict[str, TokenRow] = {}
        #: token id -> time of its last report.
        self._told_s: dict[str, float] = {}

    async def principal(
        self, secret: str, *, before: Callable[[], None] | None = None
    ) -> Principal | None:
        """Return the principal of a secret; None if it is unknown, expired or revoked.

        Args:
            secret: the token.
            before: called before the store is asked for a token that is not known here; it may
                refuse that.

        Raises:
            StoreUnavailableError: tokens could not be read for longer than the grace.
        """
        if not secret or len(secret) > LONGEST:
            return None
        digest = hash_secret(secret)
        await self._row(digest, before)
        return self._judge(digest)

    def _judge(self, digest: str) -> Principal | None:
        row = self._rows.get(digest)
        if row is None or not hmac.compare_digest(row.secret_hash, digest):
            return None
        if not self._is_valid(row):
            if row.replaced_s is not None:
                self.note_reuse(row)
            return None
        self._used[row.token_id] = self._now()
        return _principal(row)

    def _is_valid(self, row: TokenRow) -> bool:
        return row.revoked_s is None and (row.expires_s is None or row.expires_s > self._now())

    def remembered(self, secret: str) -> Principal | None:
        """Return the principal of a secret from the cache; None: call ``principal``."""
        if not secret or len(secret) > LONGEST or self._is_due():
            return None
        return self._judge(hash_secret(secret))

    def is_good(self, principal: Principal) -> bool:
        """Return whether the token of an admitted caller is still valid, as last read.

        If tokens are not required, this is always true.
        """
        if not principal.token_id:
            return True
        if principal.foreign:
            return principal.expires_s is not None and principal.expires_s > self._now()
        row = self._by_id.get(principal.token_id)
        return row is not None and self._is_valid(row)

    def note_reuse(self, row: TokenRow) -> None:
        """Record that a token was used although its successor is in use."""
        now_s = self._monotonic()
        if now_s - self._told_s.get(row.token_id, -REUSE_TOLD_S) >= REUSE_TOLD_S:
            self._told_s[row.token_id] = now_s
            self._reused[row.token_id] = row

    def reused(self) -> list[TokenRow]:
        """Return the tokens that were used after their renewal and are not yet reported."""
        found, self._reused = self._reused, {}
        return list(found.values())

    async def refresh(self) -> None:
        """Read the tokens again if the last reading is too old.

        Raises:
            StoreUnavailableError: they could not be read for longer than the grace.
        """
        if self._is_due():
            async with self._reading:
                if self._is_due():
                    await self._read()

    def forget(self) -> None:
        """Read the tokens again before the next one is judged."""
        self._outdated = True

    async def flush(self) -> None:
        """Write the times of last use."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await in_thread(self._store.touch_tokens, used)
        except StoreError as error:
            _log.warning("the tokens' times of last use could not be written: %s", error)

    async def _row(self, digest: str, before: Callable[[], None] | None = None) -> TokenRow | None:
        await self.refresh()
        row = self._rows.get(digest)
        if row is None and digest not in self._unknown:
            if before is not None:
                before()
            row = await in_thread(self._store.token, digest)
            if row is not None:
                self._rows[digest] = self._by_id[row.token_id] = row
            elif len(self._unknown) < MOST_UNKNOWN:
                self._unknown.add(digest)
        return row

    def _is_due(self) -> bool:
        return self._outdated or self._age() >= self._settings.token_cache_s

    def _age(self) -> float:
        return float("inf") if self._read_at is None else self._monotonic() - self._read_at

    async def _read(self) -> None:
        asked_at, self._outdated = self._monotonic(), False
        try:
            rows = await in_thread(self._store.tokens)
        except StoreUnavailableError:
            if self._age() > self._settings.token_grace_s:
                raise
            return  # while the store is away, no token can be revoked
        self._rows = {row.secret_hash: row for row in rows if row.revoked_s is None}
        self._by_id = {row.token_id: row for row in self._rows.values()}
        self._unknown = set()
        self._read_at = asked_at


def _principal(row: TokenRow) -> Principal:
    role = Role(row.role)
    return Principal(
        subject=row.subject,
        role=role,
        projects=frozenset(row.projects),
        token_id=row.token_id,
        expires_s=row.expires_s,
        node=row.subject if role is Role.AGENT else "",
    )
