"""Filters of jobs as requests have them, made of what ``scheduler.store.filters`` declares."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Query
from pydantic import Field

from api.schemas.fields import type_of
from scheduler.domain.jobs.fields import Word
from scheduler.store.filters import FILTERS, Filter

Route = TypeVar("Route", bound=Callable[..., Any])


def with_filters(route: Route) -> Route:
    """Give a route a parameter of the query for each filter, in place of its ``**filters``."""
    signature = inspect.signature(route)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    before = [one for one in own if not _of_query(one)]
    behind = [one for one in own if _of_query(one)]
    route.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*before, *map(_parameter, FILTERS), *behind]
    )
    return route


def selector_fields() -> dict[str, tuple[Any, Any]]:
    """Return the fields of a selector: type and field by name."""
    return {
        one.name: (_body_type(one), Field([] if one.most else None, description=one.selects))
        for one in FILTERS
        if one.selects
    }


def _of_query(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def _parameter(known: Filter) -> inspect.Parameter:
    kind = kind_of(known)
    annotation: Any = (
        Annotated[list[kind], Query(max_length=known.most, description=known.help)]  # type: ignore[valid-type]
        if known.most
        else Annotated[kind | None, Query(description=known.help)]
    )
    return inspect.Parameter(
        known.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=[] if known.most else None,
        annotation=annotation,
    )


def _body_type(known: Filter) -> Any:
    kind = kind_of(known)
    if known.most:
        return Annotated[list[kind], Field(max_length=known.most)]  # type: ignore[valid-type]
    return kind | None


def kind_of(known: Filter) -> Any:
    """Return the type of a filter's values."""
    return type_of(known.kind) if isinstance(known.kind, Word) else known.kind
