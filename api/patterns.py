"""Regular expressions of the texts in requests, each with words for people."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: No control characters at all.
PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
#: No control characters but tab and line ends: arguments may be small programs.
PRINTABLE_LINES: Final = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$"
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
SUBJECT: Final = r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$"
#: Job ids may be those of array elements, as in ``name[3]``.
JOB_ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._\[\]-]*$"
WORKER_TYPE: Final = r"^[A-Za-z0-9][A-Za-z0-9._:+/ -]*$"
CLIENT_ID: Final = r"^[\x21-\x7e]*$"
WEB_ADDRESS: Final = r"^[\x21-\x7e]+$"
VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
LABEL_KEY: Final = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
ABSOLUTE_PATH: Final = r"^/[^\x00-\x1f\x7f-\x9f]*$"
DIGEST: Final = r"^[0-9a-f]{64}$"
IMAGE: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"
EVENT_ID: Final = r"^[0-9]*$"
MONTH: Final = r"^[0-9]{4}-(0[1-9]|1[0-2])$"
EXEC_ID: Final = r"^[0-9a-f]{32}$"
#: ATTEMPT/NODE/STREAM/OFFSET
LOG_PLACE: Final = r"^[0-9]{1,9}/[A-Za-z0-9._-]{1,253}/(out|err)/[0-9]{1,18}$"


def _begins_plainly(others: str) -> str:
    return f"must begin with a letter A-Z or a digit, and may contain letters, digits, {others}"


#: Pattern -> what a text that does not match it must be.
IN_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        PRINTABLE: "must not contain control characters, such as line ends and tabs",
        PRINTABLE_LINES: "must not contain control characters except line ends and tabs",
        NAME: _begins_plainly("'.', '_' and '-'"),
        SUBJECT: _begins_plainly("'.', '_', '@', '+' and '-'"),
        JOB_ID: _begins_plainly("'.', '_', '-', '[' and ']'"),
        WORKER_TYPE: _begins_plainly("'.', '_', ':', '+', '/', '-' and spaces"),
        CLIENT_ID: "must be letters, digits and signs of ASCII, without spaces",
        WEB_ADDRESS: "must be letters, digits and signs of ASCII, without spaces",
        VARIABLE: "must begin with a letter A-Z or '_', and may contain letters, digits and '_'",
        LABEL_KEY: _begins_plainly("'.', '_', '/' and '-'"),
        ABSOLUTE_PATH: "must begin with '/', and must not contain control characters",
        DIGEST: "must be a SHA-256: 64 digits 0-9 and letters a-f",
        IMAGE: _begins_plainly("'.', '_', ':', '/', '@' and '-'"),
        EVENT_ID: "must be a whole number",
        MONTH: "must be a month, such as 2026-08",
        EXEC_ID: "must be 32 digits 0-9 and letters a-f",
        LOG_PLACE: "must be ATTEMPT/NODE/out/OFFSET or ATTEMPT/NODE/err/OFFSET",
    }
)
