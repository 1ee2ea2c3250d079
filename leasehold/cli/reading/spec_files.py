"""Files with jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scheduler.errors import InputError
from scheduler.unreadable import why_unreadable
from scheduler.views.job_documents import read_documents


def read_jobs(
    name: str, mistakes: list[str] | None = None
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Read the jobs of a file.

    Args:
        name: its path, or ``-`` for standard input (YAML or JSON).
        mistakes: as for ``to_scheduler_form``.

    Returns:
        The jobs in the scheduler's form, not checked further, each with its original text.

    Raises:
        InputError: the file cannot be read or holds no jobs.
    """
    kind = Path(name).suffix.lower().removeprefix(".")
    return read_documents(_text(name), kind=kind, where=name, mistakes=mistakes)


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"there is no file '{name}'; to submit a command, put -- before it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{name}' cannot be read: {why_unreadable(error)}") from None
