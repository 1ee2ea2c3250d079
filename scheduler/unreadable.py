"""Why a file cannot be read, in words for its user."""

from __future__ import annotations

from typing import Final

#: First bytes of files that have to be unpacked -> the name of their format.
_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


def why_unreadable(error: Exception) -> str:
    """Return why a file cannot be read, without numbers of errors and without its bytes."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is {not_text(error.object)}"
    return getattr(error, "strerror", None) or str(error)


def not_text(raw: bytes) -> str:
    """Return what is read in place of text, and the remedy.

    Args:
        raw: from the beginning of the file on.
    """
    packed = next((name for first, name in _PACKED.items() if raw.startswith(first)), None)
    if packed is not None:
        return f"a {packed} file; unpack it"
    return "not UTF-8 text; convert it to UTF-8, or name another file"
