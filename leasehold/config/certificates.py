"""Until when a certificate is valid."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

#: For how long before its end a certificate is worth a warning: days, and a part of its validity.
_SOON, _SOON_PART = timedelta(days=7), 1 / 3
ENDS: Final = "ends"
ENDED: Final = "ended"


@dataclass(frozen=True, slots=True)
class Validity:
    """The time in which a certificate is valid.

    Attributes:
        path: of its PEM file.
        since: the begin, with its zone.
        until: the end, with its zone.
    """

    path: str
    since: datetime
    until: datetime

    def state(self, now: datetime) -> str:
        """Return whether it has ended or ends soon; empty if neither."""
        if self.until <= now:
            return ENDED
        soon = min(_SOON, (self.until - self.since) * _SOON_PART)
        return ENDS if self.until <= now + soon else ""

    def in_words(self, now: datetime) -> str:
        """Return when it has ended or ends, and what to do; empty if it lasts."""
        at = self.until.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")
        return {
            ENDED: f"'{self.path}' ended at {at}, and clients refuse it; replace it and its key",
            ENDS: f"'{self.path}' ends at {at}; replace it and its key before",
        }.get(self.state(now), "")


def validity_of(path: str) -> Validity | None:
    """Return the validity of the first certificate of a PEM file; None if it cannot be read."""
    from cryptography import x509  # noqa: PLC0415  slow to import, and few have a certificate

    try:
        read = x509.load_pem_x509_certificate(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return Validity(path, read.not_valid_before_utc, read.not_valid_after_utc)
