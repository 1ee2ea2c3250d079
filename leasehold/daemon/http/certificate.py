"""Reads the certificate of the HTTP server again when its files change.

A renewal (by cert-manager, certbot or an operator) replaces files. A server that read
them once would show the old certificate until it is restarted.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from leasehold.config.certificates import SOON, end_in_words, valid_until

_log = logging.getLogger("leasehold.daemon")


@dataclass(kw_only=True)
class CertificateReloader:
    """Loads changed files into the context of a server; open connections are not affected.

    Attributes:
        context: of the server; it uses a newly loaded pair for new connections.
        certificate: PEM file of the certificate.
        key: PEM file of its private key.
    """

    context: ssl.SSLContext
    certificate: str
    key: str
    _loaded: tuple[object, ...] = field(init=False)
    _refused: tuple[object, ...] | None = field(default=None, init=False)
    _until: datetime | None = field(init=False)
    _told: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Note the files that the server has loaded."""
        self._loaded, self._until = self._files(), valid_until(self.certificate)
        self._tell_end()

    def look(self) -> None:
        """Load the pair if a file has changed; keep the old pair if the new one cannot be used.

        The files are not replaced at once, so a pair that does not match is tried again.
        """
        files = self._files()
        if files == self._loaded:
            self._tell_end()
            return
        until, now = valid_until(self.certificate), datetime.now(UTC)
        try:
            if until is not None and until <= now < (self._until or now):
                raise ValueError(f"it ended at {until.isoformat(timespec='minutes')}")  # noqa: TRY301
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            self.context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if files != self._refused:
                _log.warning(
                    "server.tls_cert '%s' and server.tls_key '%s' have changed and cannot be used "
                    "(%s); the certificate of before stays",
                    self.certificate,
                    self.key,
                    error,
                )
            self._refused = files
            return
        self._loaded, self._refused, self._until, self._told = files, None, until, ""
        _log.info("the certificate '%s' has changed and was loaded", self.certificate)
        self._tell_end()

    def _tell_end(self) -> None:
        """Log once that the certificate ends soon, and once that it has ended."""
        now = datetime.now(UTC)
        if self._until is None or self._until > now + SOON:
            return
        state = "ended" if self._until <= now else "ends"
        if state != self._told and (words := end_in_words(self.certificate, now=now)):
            _log.warning("the certificate %s", words)
        self._told = state

    def _files(self) -> tuple[object, ...]:
        return tuple(_identity(path) for path in (self.certificate, self.key))


def _identity(path: str) -> object:
    """Return values that change with a file's content; links are followed."""
    try:
        found = Path(path).stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
