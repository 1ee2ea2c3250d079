"""A model and its step as one document, as jobs give it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from planner.plans.hugging_face import read_config
from planner.plans.layers import Layer, MeasuredLayers, convert_document, read_layers
from planner.plans.training import LayeredTraining, Training
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Characters of a job's model: it is stored with each job. Its layers: plans of more take longer.
LONGEST: Final = 65_536
MOST_LAYERS: Final = 128
#: Precision of a model that is a ``config.json``.
USUAL_PRECISION: Final = "fp16"


class ModelDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A model and its step: a ``config.json``, or a list of layers.

    Attributes:
        name: of the model.
        batch: samples of a step, of all workers together.
        sequence: tokens of a sample; by default what the model says.
        precision: of the products of matrices; by default that of the layers, fp16 of a config.
        config: a ``config.json`` for Hugging Face Transformers.
        layers: see ``planner.plans.layers.Layer``.
        measured: see ``planner.plans.layers.MeasuredLayers``.
    """

    name: str = ""
    batch: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    sequence: Annotated[int, msgspec.Meta(ge=1, le=2**24)] | None = None
    precision: str | None = None
    config: dict[str, Any] | None = None
    layers: Annotated[tuple[Layer, ...], msgspec.Meta(min_length=1)] | None = None
    measured: tuple[MeasuredLayers, ...] | None = None


def read_model(document: Any, *, name: str, place: str) -> Training | LayeredTraining:
    """Return a model and its step.

    Args:
        document: plain values of JSON with the attributes of ``ModelDocument``.
        name: of the model, unless the document has one.
        place: where the document is, for messages.

    Raises:
        InputError: a value cannot be used.
    """
    found = convert_document(document, ModelDocument, place)
    if found.config is None and found.layers is None:
        raise InputError(f"{place} has neither config nor layers")
    if found.config is not None and found.layers is not None:
        raise InputError(f"{place} has both config and layers; leave one out")
    name = found.name or name
    if found.config is not None:
        if found.measured is not None:
            raise InputError(f"{place}: measured belongs to layers; this model is a config")
        try:
            shape = read_config(found.config, name=name, sequence=found.sequence)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
        return Training(
            model=shape, batch=found.batch, precision=found.precision or USUAL_PRECISION
        )
    model = read_layers(_given(found), name=name, place=place)
    return LayeredTraining(model=model, batch=found.batch, precision=model.precision)


def write_model(document: Any, *, place: str) -> str:
    """Return a model and its step as JSON; equal models give equal texts.

    Args:
        document: as for ``read_model``.
        place: where the document is, for messages.

    Raises:
        InputError: a value cannot be used.
    """
    training = read_model(document, name=place, place=place)
    if isinstance(training, LayeredTraining) and training.model.layers > MOST_LAYERS:
        raise InputError(
            f"{place} has {training.model.layers} layers, and {MOST_LAYERS} are taken; describe "
            "several layers as one"
        )
    found = msgspec.to_builtins(convert_document(document, ModelDocument, place))
    text = json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > LONGEST:
        raise InputError(f"{place} is {len(text)} characters long, and {LONGEST} are taken")
    return text


def _given(found: ModelDocument) -> Mapping[str, Any]:
    """Return the part of a document that describes layers."""
    values = {key: getattr(found, key) for key in ("sequence", "precision", "layers", "measured")}
    return {key: msgspec.to_builtins(one) for key, one in values.items() if one is not None}
