"""The model of ``leasehold plan``: a config.json, or a list of layers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scheduler.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from planner.plans.training import LayeredTraining, Training


def read_training(
    path: Path, *, batch: int, sequence: int | None, precision: str | None
) -> Training | LayeredTraining:
    """Return a model and its step.

    Args:
        path: a ``config.json`` for Hugging Face or its folder, or a list of layers as YAML, JSON or
            CSV.
        batch: samples of a step.
        sequence: tokens of a sample; None for what the file says.
        precision: of the products of matrices; None for what the file says.

    Raises:
        InputError: the file cannot be used, or says something else than the arguments.
    """
    from planner.plans.hugging_face import read_config  # noqa: PLC0415 - keeps the start quick
    from planner.plans.training import Training  # noqa: PLC0415 - keeps the start quick

    file = path / "config.json" if path.is_dir() else path
    document = _read(file)
    if not isinstance(document, dict):
        raise InputError(f"{file} is a {type(document).__name__}; it must be an object")
    name = file.parent.resolve().name if file.name == "config.json" else file.stem
    if isinstance(document.get("layers"), list):
        return _layered(document, name, file, batch, {"sequence": sequence, "precision": precision})
    try:
        model = read_config(document, name=name, sequence=sequence)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return Training(model=model, batch=batch, precision=precision or "fp16")


def _read(file: Path) -> Any:
    """Return the content of a file of YAML, CSV or, by default, JSON."""
    from planner.plans.layers import read_layer_table  # noqa: PLC0415 - keeps the start quick
    from traces.files import read_text  # noqa: PLC0415 - keeps the start quick
    from traces.yaml_file import read_yaml  # noqa: PLC0415 - keeps the start quick

    if file.suffix in {".yaml", ".yml"}:
        return read_yaml(file)
    if file.suffix == ".csv":
        return read_layer_table(read_text(file), place=str(file))
    try:
        return json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def _layered(
    document: dict[str, Any], name: str, file: Path, batch: int, wanted: dict[str, Any]
) -> LayeredTraining:
    """Return a list of layers and its step; options say only what the file leaves out."""
    from planner.plans.layers import read_layers  # noqa: PLC0415 - keeps the start quick
    from planner.plans.training import LayeredTraining  # noqa: PLC0415 - keeps the start quick

    for field, value in wanted.items():
        if value is None:
            continue
        if document.get(field, value) != value:
            raise InputError(
                f"--{field} is {value!r}, but {file} counts and measures with {document[field]!r}; "
                f"leave --{field} out"
            )
        document = document | {field: value}
    model = read_layers(document, name=name, place=str(file))
    return LayeredTraining(model=model, batch=batch, precision=model.precision)
