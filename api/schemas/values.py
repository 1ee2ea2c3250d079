"""Forms of answers that are frozen values: the value's class declares and describes the fields."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar, cast, get_type_hints

from pydantic import BaseModel, Field, create_model

from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.facts.troubles import Trouble
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason

F = TypeVar("F", bound=BaseModel)

_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
#: Names in annotations of values -> types of answers. ``form_of`` adds its forms, so that a value
#: in a field of another one has its own form.
_TYPES: Final[dict[str, Any]] = {"Mapping": Mapping} | {
    kind.__name__: kind for kind in (EndReason, JobStatus, Trouble, WaitReason)
}


def form_of(
    source: type[Any], *, without: Collection[str] = (), only: Collection[str] = ()
) -> Callable[[type[F]], type[F]]:
    """Return a decorator of a form that has the fields of a dataclass.

    Fields that the form itself has replace those of the same name, or follow them. They keep the
    description of the dataclass, as does the form, unless they have their own.

    Args:
        source: a dataclass with an ``Attributes:`` section.
        without: fields that answers leave out.
        only: fields that answers have; empty for all others. A source with secrets names them, so
            that a new field is not shown by mistake.

    Raises:
        TypeError: a name is no field of the dataclass, a field has no description, the form has a
            field that it leaves out or a base besides ``BaseModel``, or the dataclass has a form.
    """
    about, _, attributes = inspect.cleandoc(source.__doc__ or "").partition("Attributes:\n")
    texts = {name: _text(words).removesuffix(".") for name, words in _ATTRIBUTE.findall(attributes)}
    types = get_type_hints(source, localns=_TYPES)
    known = source.__dataclass_fields__
    shown = [name for name in known if name not in without and (not only or name in only)]

    def formed(form: type[F]) -> type[F]:
        own = form.model_fields
        said = texts.keys() | {name for name, field in own.items() if field.description}
        faults = [f"{source.__name__} has no '{n}'" for n in (*without, *only) if n not in known]
        faults += [f"it leaves '{name}' out, but has it" for name in without if name in own]
        faults += [f"'{name}' has no description" for name in shown if name not in said]
        faults += ["its base is not BaseModel"] * (form.__base__ is not BaseModel)
        faults += [f"{source.__name__} has a form"] * (source.__name__ in _TYPES)
        if faults:
            raise TypeError(f"form {form.__name__}: {'; '.join(faults)}")
        found: dict[str, Any] = {
            name: (types[name], Field(description=texts.get(name))) for name in shown
        }
        for name, field in own.items():
            text = field.description or texts.get(name)
            found[name] = (Annotated[field.annotation, field], Field(description=text))
        doc = form.__doc__ or _text(about.partition("\n\n")[0])
        made = create_model(form.__name__, __doc__=doc, __module__=form.__module__, **found)
        _TYPES[source.__name__] = made
        return cast("type[F]", made)

    return formed


def values_of(form: type[BaseModel], value: object) -> dict[str, Any]:
    """Return the fields of a dataclass that the form has, too, and their values."""
    source: Any = type(value)
    return {name: getattr(value, name) for name in _shared_fields(form, source)}


@cache
def _shared_fields(form: type[BaseModel], source: type[Any]) -> tuple[str, ...]:
    return tuple(name for name in form.model_fields if name in source.__dataclass_fields__)


def _text(words: str) -> str:
    """Return a text of a docstring as the OpenAPI document has it."""
    return re.sub(r"\bNone\b", "null", " ".join(words.split()).replace("``", "`"))
