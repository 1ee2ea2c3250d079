"""Options that select jobs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from leasehold.cli.reading.pairs import parse_pairs, split_list
from leasehold.cli.session.completion import complete_job, complete_project
from scheduler.domain.jobs.fields import Word
from scheduler.errors import InputError
from scheduler.store.filters import FILTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.store.filters import Filter

#: Filters that select jobs for an action, by name.
_SELECTING: Final = {one.name: one for one in FILTERS if one.selects}

JobIds: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...",
        help="Jobs: ids, beginnings of ids, or names.",
        autocompletion=complete_job,
        show_default=False,
    ),
]
JobId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job: its id, the beginning of it, or its name.",
        autocompletion=complete_job,
    ),
]
Selector: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--selector",
        "-s",
        metavar="FIELD=VALUE",
        help=f"Instead of ids: {', '.join(f'{name}=' for name in _SELECTING)}, label.KEY=. "
        "Repeatable; all must hold.",
    ),
]
Labels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="K=V", help="Only jobs with this label. Repeatable."),
]

_COMPLETED: Final = {Word.PROJECT: complete_project}


def with_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each filter of jobs, in place of its ``**filters``."""
    signature = inspect.signature(command)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    positional = [one for one in own if one.kind is not one.KEYWORD_ONLY]
    options = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[(list[str] if one.most else str) | None, _option(one)],
        )
        for one in FILTERS
    ]
    named = [one for one in own if one.kind is one.KEYWORD_ONLY]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*positional, *options, *named]
    )
    command.__annotations__.pop("filters")
    command.__annotations__ |= {option.name: option.annotation for option in options}
    return command


def _option(known: Filter) -> Any:
    return typer.Option(
        known.flag,
        *filter(None, [known.option.short]),
        help=known.option.help,
        metavar=known.option.metavar or None,
        autocompletion=_COMPLETED.get(known.kind) if isinstance(known.kind, Word) else None,
    )


def requested_filters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters of a request from the options of ``with_filters``.

    Raises:
        InputError: one of them is empty.
    """
    made: dict[str, Any] = {}
    for one in FILTERS:
        value = given[one.name]
        if one.most:
            value = split_list(value or [], option=one.flag)
        elif value is not None:
            _check_named(one, value, option=one.flag)
        made[one.name] = value
    return made


def selection_of(ids: list[str] | None, selector: list[str] | None) -> dict[str, Any]:
    """Return the part of a bulk request that selects the jobs.

    Raises:
        InputError: neither or both were given, or the selector is malformed.
    """
    if bool(ids) == bool(selector):
        raise InputError("give job ids, or --selector FIELD=VALUE; not both")
    if ids:
        return {"ids": list(dict.fromkeys(ids))}
    return {"selector": _parse_selector(selector or [])}


def _check_named(known: Filter, text: str, *, option: str) -> None:
    """Refuse a filter without a value: an empty one would match every job.

    Raises:
        InputError: it is empty.
    """
    if not text.strip():
        raise InputError(f"{option} is '{text}'; give the {known.name}'s name, or leave it out")


def _parse_selector(items: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in parse_pairs(items, option="--selector").items():
        known = _SELECTING.get(key)
        if known is not None and known.most:
            made[key] = split_list([value], option=f"--selector {key}")
        elif known is not None:
            _check_named(known, value, option=f"--selector {key}")
            made[key] = value
        elif key.startswith("label.") and key != "label.":
            made.setdefault("labels", {})[key.removeprefix("label.")] = value
        else:
            fields = ", ".join((*_SELECTING, "label.KEY"))
            raise InputError(f"--selector '{key}' is unknown; there are {fields}")
    return made
