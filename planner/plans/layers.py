"""A model as a list of layers, with measured times if there are some.

Letters: L layers, b microbatch, t tensor size.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from planner.plans.hardware import plain_name
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.domain.arrays import FloatArray

#: Layers of a model; the time of cutting it into stages grows with layers times stages.
MOST_LAYERS: Final = 512

_Form = TypeVar("_Form", bound=msgspec.Struct)
_Size = Annotated[float, msgspec.Meta(ge=0, lt=1e18)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e6)]


class Layer(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Equal layers, one after another.

    Attributes:
        name: for people.
        repeat: their number.
        parameters: of one of them.
        flops: FLOPs of its forward pass, of one sample.
        kept_bytes: that it keeps for the backward pass, of one sample.
        output_bytes: that it passes on, of one sample.
    """

    name: str = ""
    repeat: _Count = 1
    parameters: _Size
    flops: _Size = 0.0
    kept_bytes: _Size
    output_bytes: _Size


class MeasuredLayers(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Measured times of each entry of ``layers``, sums within the tensor group included.

    Attributes:
        worker_type: the workers that were measured.
        tensor: t, workers that shared each layer.
        microbatch: b, samples that passed at once.
        forward_s: seconds of the forward pass of one layer of each entry.
        backward_s: of its backward pass.
        update_s: of its optimiser's step; empty if that was not measured.
        parameters: on each of the t workers; an even share if empty.
        kept_bytes: on each of the t workers, of one sample; an even share if empty.
    """

    worker_type: str
    tensor: _Count = 1
    microbatch: _Count
    forward_s: tuple[_Seconds, ...]
    backward_s: tuple[_Seconds, ...]
    update_s: tuple[_Seconds, ...] = ()
    parameters: tuple[_Size, ...] = ()
    kept_bytes: tuple[_Size, ...] = ()


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = ""
    sequence: _Count = 1
    precision: str = "fp32"
    layers: Annotated[tuple[Layer, ...], msgspec.Meta(min_length=1)]
    measured: tuple[MeasuredLayers, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerTimes:
    """Layers on workers of one type; each array is (L,).

    Attributes:
        forward_s: seconds of the forward pass of a microbatch.
        backward_s: of its backward pass.
        update_s: of the optimiser's step; None if that was not measured.
        parameters: on each worker.
        kept_bytes: on each worker, of one sample.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    update_s: FloatArray | None
    parameters: FloatArray
    kept_bytes: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayeredModel:
    """A model of L layers, one after another.

    Attributes:
        name: for people.
        sequence: tokens of a sample; 1 if samples have none.
        precision: in which the sizes count and the times were measured.
        layer_parameters: (L,) parameters of each layer.
        flops: (L,) FLOPs of its forward pass, of one sample.
        kept_bytes: (L,) that it keeps for the backward pass, of one sample.
        output_bytes: (L,) that it passes on, of one sample.
        measured: worker type, see ``plain_name`` -> (t, b) -> times.
    """

    name: str
    sequence: int
    precision: str
    layer_parameters: FloatArray
    flops: FloatArray
    kept_bytes: FloatArray
    output_bytes: FloatArray
    measured: Mapping[str, Mapping[tuple[int, int], LayerTimes]]

    @property
    def layers(self) -> int:
        """L."""
        return len(self.layer_parameters)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return int(self.layer_parameters.sum())


def read_layers(document: Any, *, name: str, place: str) -> LayeredModel:
    """Return a model from a document of YAML or JSON; see the attributes above.

    Args:
        document: its content.
        name: of the model, unless the document has one.
        place: the file, for messages.

    Raises:
        InputError: a value cannot be used.
    """
    found = convert_document(document, _Document, place)
    repeats = [one.repeat for one in found.layers]
    if sum(repeats) > MOST_LAYERS:
        raise InputError(f"{place}: layers are {sum(repeats)}; there may be {MOST_LAYERS}")

    def column(values: Sequence[float]) -> FloatArray:
        return np.repeat(np.asarray(values, dtype=float), repeats)

    parameters = column([one.parameters for one in found.layers])
    kept = column([one.kept_bytes for one in found.layers])
    measured: dict[str, dict[tuple[int, int], LayerTimes]] = {}
    for i, one in enumerate(found.measured):
        _check_lengths(one, len(repeats), f"{place}: measured[{i}]")
        of_type = measured.setdefault(plain_name(one.worker_type), {})
        if (one.tensor, one.microbatch) in of_type:
            raise InputError(
                f"{place}: measured[{i}] repeats worker_type '{one.worker_type}' with tensor "
                f"{one.tensor} and microbatch {one.microbatch}"
            )
        of_type[one.tensor, one.microbatch] = LayerTimes(
            forward_s=column(one.forward_s),
            backward_s=column(one.backward_s),
            update_s=column(one.update_s) if one.update_s else None,
            parameters=column(one.parameters) if one.parameters else parameters / one.tensor,
            kept_bytes=column(one.kept_bytes) if one.kept_bytes else kept / one.tensor,
        )
    return LayeredModel(
        name=found.name or name,
        sequence=found.sequence,
        precision=found.precision,
        layer_parameters=parameters,
        flops=column([one.flops for one in found.layers]),
        kept_bytes=kept,
        output_bytes=column([one.output_bytes for one in found.layers]),
        measured=measured,
    )


def read_layer_table(text: str, *, place: str) -> dict[str, Any]:
    """Return the document of ``read_layers`` for a table of layers as CSV.

    Args:
        text: a heading with the attributes of ``Layer``, and a line for each entry.
        place: the file, for messages.

    Raises:
        InputError: it is no CSV, or a line has more cells than the heading.
    """
    rows = csv.DictReader(io.StringIO(text, newline=None))
    layers = []
    try:
        for row in rows:
            if None in row:
                raise InputError(f"{place}:{rows.line_num}: more cells than in the heading")
            layers.append({key: cell for key, cell in row.items() if cell})
    except csv.Error as error:
        raise InputError(f"{place}:{rows.line_num}: {error}") from error
    return {"layers": layers}


def _check_lengths(one: MeasuredLayers, entries: int, place: str) -> None:
    for field in ("forward_s", "backward_s", "update_s", "parameters", "kept_bytes"):
        values = getattr(one, field)
        is_needed = field in {"forward_s", "backward_s"}
        if len(values) != entries and (values or is_needed):
            raise InputError(
                f"{place}.{field} has {len(values)} values; there are {entries} entries of layers"
            )


def convert_document(document: Any, form: type[_Form], place: str) -> _Form:
    """Return a document as a struct.

    Raises:
        InputError: a value cannot be used; the message names field and value.
    """
    try:
        # Texts become numbers: cells of CSV, and 1e6, which is a text in YAML 1.1.
        return msgspec.convert(document, form, strict=False)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`")
        if not field:
            raise InputError(f"{place}: {said}") from error
        value: Any = document
        for part in re.findall(r"\w+", field):
            value = value[int(part) if isinstance(value, list | tuple) else part]
        raise InputError(f"{place}: {field} is {value!r}: {said}") from error
