"""Models of jobs: files with a config.json or a list of layers, or a function of Python."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import InputError
from scheduler.unreadable import why_unreadable
from scheduler.views.job_documents import read_values

if TYPE_CHECKING:
    from pathlib import Path

#: ``package.module:function``.
FUNCTION: Final = re.compile(r"\w+(\.\w+)*:\w+")


def load_model(model: Any, folder: Path, *, place: str) -> Any:
    """Return a job's model with the content of the files that it names.

    Args:
        model: as in a job file: an object whose ``config`` and ``layers`` may be paths, or
            ``module:function`` for layers; or the path of a file with such an object, or its JSON.
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
        file = folder / layers
        traced = not file.exists() and FUNCTION.fullmatch(layers)
        found = trace_layers(layers) if traced else _read(file, f"{place}.layers")
        found = found if isinstance(found, dict) else {"layers": found}
        made = found | made | {"layers": found.get("layers")}
    return made


def trace_layers(place: str) -> dict[str, Any]:
    """Return the layers of the module that a function of the user makes, in this process.

    Args:
        place: the function, see ``FUNCTION``.

    Raises:
        InputError: it cannot be called, or fails.
    """
    from leasehold.torch import describe_layers  # noqa: PLC0415 - keeps the start quick

    module, function = place.split(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the present folder, as for ``python -m``
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the answer
            make = getattr(importlib.import_module(module), function)
            return describe_layers(make, name=function)
    except ModuleNotFoundError as error:
        remedy = "install it"
        if error.name == "torch":
            remedy = "pip install 'leasehold-scheduler[torch]'"
        elif f"{module}.".startswith(f"{error.name}."):
            remedy = "run the command in its folder"
        raise InputError(f"{place}: there is no module '{error.name}'; {remedy}") from error
    except SystemExit as error:
        raise InputError(
            f"{place} ends the process; it must return a module and its inputs"
        ) from error
    except Exception as error:  # the function is the user's
        raise InputError(f"{place} failed: {type(error).__name__}: {error}") from error


def _read(file: Path, place: str) -> Any:
    """Return the content of a file of YAML, JSON or CSV."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{place} is '{file}', and there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{place} is '{file}', which {_cannot(error)}") from None
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


def _cannot(error: OSError | UnicodeDecodeError) -> str:
    return f"cannot be read: {why_unreadable(error)}"
