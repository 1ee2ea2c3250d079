"""Variables of jobs that are kept encrypted: sealed when a job comes in, opened for its node.

Each value is sealed by AES-256-GCM with a key of the operator's, for one variable of one job: text
that is moved to another job or another name does not open. The database, its journal, its snapshots
and its backups hold sealed values alone.

A sealed value is ``v1.KEY.DATA``: the key's id, and nonce and ciphertext in base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from scheduler.errors import InputError
from scheduler.unreadable import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from scheduler.domain.jobs.spec import JobSpec

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_VERSION: Final = "v1"
#: Jobs that a sentence names at most.
_NAMED: Final = 20

NO_KEY: Final = (
    "secret_env cannot be kept: this scheduler has no key to encrypt it with; have an operator "
    "make one (`leasehold secrets new-key FILE`) and name it in the setting secrets.key_file"
)


def new_key() -> str:
    """Return a new key, as files and variables have it."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def parse_keys(text: str, *, where: str) -> tuple[bytes, ...]:
    """Return the keys of a text: the first one seals, all of them open.

    Args:
        text: keys in base64, apart by white space or commas; ``#`` begins a remark.
        where: it stands, for the error, which quotes none of it.

    Raises:
        InputError: one of them is no key.
    """
    lines = (line.partition("#")[0] for line in text.splitlines())
    words = [word for line in lines for word in line.replace(",", " ").split()]
    keys = []
    for position, word in enumerate(words, 1):
        try:
            key = base64.b64decode(word, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _KEY_BYTES:
            raise InputError(
                f"{where}: key {position} is not 32 bytes in base64; make one with "
                "`leasehold secrets new-key FILE`"
            )
        keys.append(key)
    return tuple(keys)


def key_id(key: bytes) -> str:
    """Return the name of a key, which reveals nothing of it."""
    return hashlib.sha256(b"leasehold key id\0" + key).hexdigest()[:12]


def id_in(sealed: str) -> str:
    """Return the id of the key that sealed a value; empty for a value that is not sealed."""
    version, _, rest = sealed.partition(".")
    return rest.partition(".")[0] if version == _VERSION else ""


class KeyFile:
    """The keys in a file, which is read again when it has changed.

    Raises:
        InputError: something in it is no key.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._keys: tuple[bytes, ...] = ()
        self()

    def __call__(self) -> tuple[bytes, ...]:
        """Return the keys; empty if the file does not exist.

        Raises:
            InputError: the file cannot be read, or something in it is no key.
        """
        try:
            found = self._path.stat()
            now = found.st_mtime_ns, found.st_ino, found.st_size
            if now != self._seen:
                text = self._path.read_text(encoding="ascii", errors="replace")
                self._keys, self._seen = parse_keys(text, where=str(self._path)), now
        except FileNotFoundError:
            self._keys, self._seen = (), None
        except OSError as error:
            why = why_unreadable(error)
            raise InputError(f"the keys in {self._path} cannot be read: {why}") from error
        return self._keys


class SecretBox:
    """Seals and opens the secret variables of jobs.

    Args:
        keys: returns the keys, the one that seals first; none by default.
        where: the keys are to be found, for people.
    """

    def __init__(
        self, keys: Callable[[], tuple[bytes, ...]] = tuple, *, where: str = "secrets.key_file"
    ) -> None:
        self._keys = keys
        self._where = where

    @property
    def can_seal(self) -> bool:
        """Whether there is a key."""
        return bool(self._keys())

    def sealed(self, spec: JobSpec, job_id: str) -> JobSpec:
        """Return a job as it is kept: the values of its secret variables sealed.

        Raises:
            InputError: there is no key.
        """
        if not spec.secret_env:
            return spec
        kept = self.seal(spec.secret_env, job_id)
        return replace(spec, secret_env=MappingProxyType(kept))

    def opened(self, kept: Mapping[str, str], job_id: str) -> dict[str, str]:
        """Return the secret variables of a job in the clear.

        Raises:
            InputError: a key is lost, or the stored value is damaged; the message has the remedy.
        """
        if not kept:
            return {}
        keys = {key_id(key): key for key in self._keys()}
        return {name: self._open(keys, sealed, job_id, name) for name, sealed in kept.items()}

    def seal(self, values: Mapping[str, str], owner: str) -> dict[str, str]:
        """Return values in their stored form, sealed for their owner; see ``opened``.

        Raises:
            InputError: there is no key.
        """
        keys = self._keys()
        if not keys:
            raise InputError(NO_KEY)
        return {name: _seal(keys[0], value, owner, name) for name, value in values.items()}

    def resealed(self, kept: Mapping[str, str], job_id: str) -> dict[str, str] | None:
        """Return the stored values sealed by the first key; None if they are already.

        Raises:
            InputError: a key is lost or missing.
        """
        keys = self._keys()
        if not keys:
            raise InputError(NO_KEY)
        if all(id_in(sealed) == key_id(keys[0]) for sealed in kept.values()):
            return None
        clear = self.opened(kept, job_id)
        return {name: _seal(keys[0], value, job_id, name) for name, value in clear.items()}

    def lost(self, jobs: Iterable[tuple[str, Mapping[str, str]]]) -> str:
        """Say which keys are lost, which jobs need them and what to do; empty if none is.

        Args:
            jobs: id and stored values of each.
        """
        known = {key_id(key) for key in self._keys()}
        hit: dict[str, list[str]] = {}
        for job_id, kept in jobs:
            for one in {id_in(sealed) for sealed in kept.values()} - known:
                hit.setdefault(one, []).append(job_id)
        parts = [f"key {one} of {_listed(ids)}" for one, ids in sorted(hit.items())]
        if not parts:
            return ""
        return (
            f"keys of secret_env are lost: {'; '.join(parts)}. These jobs cannot be started. Put "
            f"the keys back ({self._where}), or cancel the jobs and submit them again"
        )

    def _open(self, keys: Mapping[str, bytes], sealed: str, job_id: str, name: str) -> str:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - replays lack it
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

        found = id_in(sealed)
        if found not in keys:
            raise InputError(
                f"secret_env.{name} was encrypted with key {found or '?'}, which this scheduler "
                f"does not have; put that key back ({self._where}) and requeue the job, or submit "
                "it again"
            )
        try:
            data = base64.b64decode(sealed.split(".")[2], altchars=b"-_", validate=True)
            nonce, box = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            return AESGCM(keys[found]).decrypt(nonce, box, _bound(job_id, name)).decode()
        except (IndexError, ValueError, InvalidTag):
            raise InputError(
                f"secret_env.{name} was not stored for this job; submit the job again"
            ) from None


def _seal(key: bytes, value: str, job_id: str, name: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - replays lack it

    nonce = os.urandom(_NONCE_BYTES)
    data = nonce + AESGCM(key).encrypt(nonce, value.encode(), _bound(job_id, name))
    return f"{_VERSION}.{key_id(key)}.{base64.urlsafe_b64encode(data).decode()}"


def _bound(job_id: str, name: str) -> bytes:
    """Return what a value is sealed for."""
    return f"{job_id}\0{name}".encode()


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{len(ids)} jobs ({', '.join(ids[:_NAMED])}{more})"
