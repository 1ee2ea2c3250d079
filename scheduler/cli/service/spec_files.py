"""Jobs from files: YAML, JSON or TOML; one job, a list, or ``jobs:`` with a list."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from scheduler.cli.service.times import parse_deadline, parse_span
from scheduler.errors import InputError

#: Fields that a file may write as a span of time -> the field that the scheduler knows.
_SPANS: Final = {
    "duration": "duration_s",
    "max_run_time": "max_run_time_s",
    "notice": "notice_s",
    "grace": "grace_s",
    "restart": "restart_s",
}
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def read_jobs(name: str) -> list[dict[str, Any]]:
    """Read the jobs of a file.

    Args:
        name: its path, or ``-`` for standard input (YAML or JSON).

    Returns:
        The jobs as the scheduler wants them, not checked any further.

    Raises:
        InputError: the file cannot be read or holds no jobs.
    """
    text = _text(name)
    suffix = Path(name).suffix.lower()
    try:
        if suffix == ".toml":
            documents: list[Any] = [tomllib.loads(text)]
        elif suffix == ".json":
            documents = [json.loads(text)]
        else:
            documents = _yaml(text)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
    jobs = [job for document in documents for job in _jobs(document, name)]
    if not jobs:
        raise InputError(f"{name} holds no job; write one with at least `name` and `command`")
    return [friendly(_as_json(job, name), where=name) for job in jobs]


def friendly(job: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Translate what people write into what the scheduler knows.

    ``deadline: 2h``, ``duration: 90m`` and ``memory: 4GiB`` become ``deadline_in_s`` and so on; a
    field that nobody knows stays, and the scheduler names it.
    """
    made = dict(job)
    for short, field in _SPANS.items():
        if short in made:
            made[_free(made, short, field, where)] = parse_span(
                str(made.pop(short)), name=f"{where}: {short}"
            )
    if "deadline" in made:
        due = parse_deadline(str(made.pop("deadline")), name=f"{where}: deadline")
        for field, value in due.items():
            made[_free(made, "deadline", field, where)] = value
    if "memory" in made:
        size = parse_size(str(made.pop("memory")), name=f"{where}: memory")
        made[_free(made, "memory", "memory_bytes", where)] = size
    return made


def parse_size(text: str, *, name: str) -> int:
    """Return bytes: ``512M``, ``4GiB``, ``1.5g``; units are powers of 1,024.

    Raises:
        InputError: it is none of these.
    """
    rest = text.strip().lower()
    unit = rest.lstrip("0123456789.")
    factor = 1 if unit in {"", "b"} else _SIZES.get(unit.removesuffix("b").removesuffix("i"), 0)
    try:
        size = float(rest.removesuffix(unit)) * factor
    except ValueError:
        size = 0.0
    if size < 1:
        raise InputError(f"{name} is '{text}'; give bytes, or a size such as 512M or 4GiB")
    return int(size)


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"there is no file '{name}'; to submit a command, put -- before it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{name}' cannot be read: {error}") from None


def _yaml(text: str) -> list[Any]:
    import yaml  # noqa: PLC0415 - only where a file is read

    try:
        # Without the C loader 1,000 jobs take seconds.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return list(yaml.load_all(text, Loader=loader))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _jobs(document: Any, name: str) -> list[dict[str, Any]]:
    if document is None:
        return []
    if isinstance(document, dict) and set(document) == {"jobs"}:
        document = document["jobs"]
    found = document if isinstance(document, list) else [document]
    for i, job in enumerate(found):
        if not isinstance(job, dict):
            raise InputError(
                f"{name}: job {i} is {str(job)[:80]!r}; a job has fields such as name and command"
            )
    return found


def _as_json(job: dict[str, Any], name: str) -> dict[str, Any]:
    """Write dates as text, and refuse what JSON has no form for."""
    try:
        return dict(json.loads(json.dumps(job, default=str, allow_nan=False)))
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: {error}") from None


def _free(job: dict[str, Any], short: str, field: str, where: str) -> str:
    if field in job:
        raise InputError(f"{where}: a job has both {short} and {field}; give one")
    return field
