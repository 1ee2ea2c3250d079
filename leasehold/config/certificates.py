"""Until when a certificate is valid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

#: For how long before its end a certificate is worth a warning.
SOON: Final = timedelta(days=7)


def valid_until(path: str) -> datetime | None:
    """Return the end of the first certificate of a PEM file; None if it cannot be read."""
    from cryptography import x509  # noqa: PLC0415  slow to import, and few have a certificate

    try:
        return x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None


def end_in_words(path: str, *, now: datetime) -> str:
    """Return that a certificate has ended or ends soon, and what to do; empty if neither."""
    until = valid_until(path)
    if until is None or until > now + SOON:
        return ""
    at = until.astimezone(UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
    if until <= now:
        return f"'{path}' ended at {at}, and clients refuse it; replace it and its key"
    return f"'{path}' ends at {at}; replace it and its key before"
