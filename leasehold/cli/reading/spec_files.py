"""Files with jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scheduler.errors import InputError
from scheduler.unreadable import why_unreadable
from scheduler.views.job_documents import read_documents
from scheduler.views.model_files import load_model


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
    found = read_documents(_text(name), kind=kind, where=name, mistakes=mistakes)
    for job, _ in found:
        if job.get("model") is not None:
            folder = Path() if name == "-" else Path(name).parent
            try:
                job["model"] = load_model(job["model"], folder, place=f"{name}: model")
            except InputError as error:
                if mistakes is None:
                    raise
                mistakes.append(str(error))
                del job["model"]
    return found


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"there is no file '{name}'; to submit a command, put -- before it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{name}' cannot be read: {why_unreadable(error)}") from None
