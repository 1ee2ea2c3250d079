"""Models of jobs: files with a config.json or a list of layers."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from scheduler.errors import InputError
from scheduler.unreadable import why_unreadable
from scheduler.views.job_documents import read_values

if TYPE_CHECKING:
    from pathlib import Path


def load_model(model: Any, folder: Path, *, place: str) -> Any:
    """Return a job's model with the content of the files that it names.

    Args:
        model: as in a job file: an object whose ``config`` and ``layers`` may be paths; or the path
            of a file with such an object, or its JSON.
        folder: from which paths count.
        place: where the model is, for messages.

    Raises:
        InputError: a file cannot be used.
    """
    if isinstance(model, str) and not model.lstrip().startswith("{"):
        file = folder / model
        document = _read(file, place)
        if isinstance(document, dict) and "model_type" in document:
            raise InputError(
                f"{place} is '{model}', a config.json without a batch; give an object with "
                f"`config: {model}` and `batch`"
            )
        model, folder, place = document, file.parent, str(file)
    if not isinstance(model, dict):
        return model
    made = dict(model)
    if isinstance(made.get("config"), str):
        made["config"] = _read(folder / made["config"], f"{place}.config")
    if isinstance(layers := made.get("layers"), str):
        found = _read(folder / layers, f"{place}.layers")
        found = found if isinstance(found, dict) else {"layers": found}
        made = found | made | {"layers": found.get("layers")}
    return made


def _read(file: Path, place: str) -> Any:
    """Return the content of a file of YAML, JSON or CSV."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{place} is '{file}', and there is no such file") from None
    except (OSError, ValueError) as error:  # a path may hold a NUL
        raise InputError(f"{place} is {str(file)!r}, which {_cannot(error)}") from None
    kind = file.suffix.lower().removeprefix(".")
    if kind == "csv":
        try:
            rows = list(csv.DictReader(io.StringIO(text, newline=None)))
        except csv.Error as error:
            raise InputError(f"{file}: {error}") from None
        return [{str(name): cell for name, cell in row.items() if cell} for row in rows]
    values = read_values(text, kind=kind, where=str(file))
    if len(values) != 1:
        raise InputError(f"{place} is '{file}', which has {len(values)} documents; give one")
    return values[0]


def _cannot(error: OSError | ValueError) -> str:
    known = isinstance(error, OSError | UnicodeDecodeError)
    return f"cannot be read: {why_unreadable(error) if known else error}"
