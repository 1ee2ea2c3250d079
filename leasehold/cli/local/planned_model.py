"""The model of ``leasehold plan``: a config.json, a list of layers, or a function of Python."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import InputError

if TYPE_CHECKING:
    from planner.plans.training import LayeredTraining, Training

_YAML: Final = frozenset({".yaml", ".yml"})
#: ``package.module:function``.
_FUNCTION: Final = re.compile(r"\w+(\.\w+)*:\w+")


def read_training(
    model: str, *, batch: int, sequence: int | None, precision: str | None
) -> Training | LayeredTraining:
    """Return a model and its step.

    Args:
        model: path of a ``config.json`` for Hugging Face or of its folder, or of a list of layers
            as YAML, JSON or CSV; or ``module:function`` for a module of PyTorch.
        batch: samples of a step.
        sequence: tokens of a sample; None for what the file says.
        precision: of the products of matrices; None for what the file says.

    Raises:
        InputError: the file cannot be used, or says something else than the arguments.
    """
    from planner.plans.document import read_model  # noqa: PLC0415 - keeps the start quick

    options = {"batch": batch, "sequence": sequence, "precision": precision}
    path = Path(model)
    if not path.exists() and _FUNCTION.fullmatch(model):
        document = _trace_layers(model)
        return read_model(_with(document, options, model), name=model, place=model)
    file = path / "config.json" if path.is_dir() else path
    document = _read(file)
    if not isinstance(document, dict):
        raise InputError(f"{file} is a {type(document).__name__}; it must be an object")
    name = file.parent.resolve().name if file.name == "config.json" else file.stem
    if "model_type" in document:  # the file is a config.json itself
        document = {"config": document}
    return read_model(_with(document, options, str(file)), name=name, place=str(file))


def _trace_layers(place: str) -> dict[str, Any]:
    """Return the layers of the module that a function of the user makes, in this process.

    Args:
        place: the function, see ``_FUNCTION``.

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


def _read(file: Path) -> Any:
    """Return the content of a file of YAML, CSV or, by default, JSON."""
    from planner.plans.layers import read_layer_table  # noqa: PLC0415 - keeps the start quick
    from traces.files import read_text  # noqa: PLC0415 - keeps the start quick
    from traces.yaml_file import read_yaml  # noqa: PLC0415 - keeps the start quick

    if file.suffix.lower() in _YAML:
        return read_yaml(file)
    if file.suffix.lower() == ".csv":
        return read_layer_table(read_text(file), place=str(file))
    try:
        return json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def _with(document: dict[str, Any], options: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a document with the batch, and options that say what it leaves out.

    Raises:
        InputError: the document says something else than an option.
    """
    given = {field: value for field, value in options.items() if value is not None}
    for field in given.keys() & {"sequence", "precision"}:
        said = document.get(field)
        if said is not None and str(said) != str(given[field]):
            raise InputError(
                f"--{field} is {given[field]!r}, but {place} is for {said!r}; leave it out"
            )
    return document | given
