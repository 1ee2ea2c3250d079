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

from leasehold.config.certificates import ENDED, Validity, validity_of

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
    _validity: Validity | None = field(init=False)
    _told: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Note the files that the server has loaded."""
        self._loaded, self._validity = self._files(), validity_of(self.certificate)
        self._tell_end()

    def look(self) -> None:
        """Load the pair if a file has changed; keep the old pair if the new one cannot be used.

        The files are not replaced at once, so a pair that does not match is tried again.
        """
        files = self._files()
        self._tell_end()
        if files == self._loaded:
            return
        validity = validity_of(self.certificate)
        try:
            self._refuse_ended(validity)
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
        self._loaded, self._refused, self._validity, self._told = files, None, validity, ""
        _log.info("the certificate '%s' has changed and was loaded", self.certificate)
        self._tell_end()

    def _tell_end(self) -> None:
        """Log once that the certificate ends soon, and once that it has ended."""
        now = datetime.now(UTC)
        state = "" if self._validity is None else self._validity.state(now)
        if self._validity is not None and state not in {"", self._told}:
            _log.warning("the certificate %s", self._validity.in_words(now))
        self._told = state

    def _refuse_ended(self, new: Validity | None) -> None:
        """Refuse a certificate that has ended in place of one that has not.

        Raises:
            ValueError: it has ended.
        """
        now = datetime.now(UTC)
        lasts = self._validity is not None and self._validity.state(now) != ENDED
        if lasts and new is not None and new.state(now) == ENDED:
            raise ValueError(new.in_words(now))

    def _files(self) -> tuple[object, ...]:
        return tuple(_identity(path) for path in (self.certificate, self.key))


def _identity(path: str) -> object:
    """Return values that change with a file's content; links are followed."""
    try:
        found = Path(path).stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
