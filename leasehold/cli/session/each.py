"""Apply one action to each of several names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from leasehold.cli import exit_codes
from leasehold.cli.display.output import plain_cell, print_json, print_remark
from scheduler.errors import ConflictError, InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def do_to_each(
    names: Sequence[str],
    do: Callable[[str], Any],
    *,
    done: str,
    as_json: bool,
    shown: Callable[[Any], str] | None = None,
) -> None:
    """Apply an action to each name; a failure does not stop the others.

    Args:
        names: the targets; each is used once.
        do: the action on one target.
        done: the result of success, in a word.
        as_json: print ``{DONE: [...], "failed": [{"name", "error"}]}``.
        shown: makes a line of a result; the results are then in JSON, else the names.

    Raises:
        LeaseholdError: the only target failed (without JSON), or no scheduler answers or permits
            it.
        typer.Exit: some targets failed.
    """
    wanted = list(dict.fromkeys(names))
    found: list[Any] = []
    failed: list[dict[str, str]] = []
    codes: list[int] = []
    for name in wanted:
        try:
            result = do(name)
        except (NotFoundError, ConflictError, InputError) as error:
            if len(wanted) == 1 and not as_json:
                raise
            print_remark(str(error) if f"'{name}'" in str(error) else f"{name}: {error}")
            failed.append({"name": name, "error": str(error)})
            codes.append(exit_codes.code_of(error))
            continue
        found.append(name if shown is None else result)
        if not as_json:  # at once: report a success even if the next one fails
            typer.echo(f"{plain_cell(name)} {done}" if shown is None else shown(result))
    if as_json:
        print_json({done: found, "failed": failed})
    if codes:
        raise typer.Exit(exit_codes.FAILED if found else max(codes))
