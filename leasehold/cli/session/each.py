"""Doing one thing to each of several names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from leasehold.cli import exit_codes
from leasehold.cli.display.output import plain, print_json, remark
from scheduler.errors import ConflictError, InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def do_to_each(
    names: Sequence[str], do: Callable[[str], object], *, done: str, as_json: bool
) -> None:
    """Do something to each name; one that cannot be used keeps none of the others.

    Args:
        names: to whom; each one once.
        do: it, to one of them.
        done: what has become of it then, in a word.
        as_json: print ``{DONE: [...], "failed": [{"name", "error"}]}``.

    Raises:
        LeaseholdError: it could not be done to the only one, or nobody answers or allows it.
        typer.Exit: it could not be done to some.
    """
    wanted = list(dict.fromkeys(names))
    found: list[str] = []
    failed: list[dict[str, str]] = []
    codes: list[int] = []
    for name in wanted:
        try:
            do(name)
        except (NotFoundError, ConflictError, InputError) as error:
            if len(wanted) == 1:
                raise
            remark(str(error) if f"'{name}'" in str(error) else f"{name}: {error}")
            failed.append({"name": name, "error": str(error)})
            codes.append(exit_codes.code_of(error))
            continue
        found.append(name)
        if not as_json:  # at once: what was done is told whatever comes next
            typer.echo(f"{plain(name)} {done}")
    if as_json:
        print_json({done: found, "failed": failed})
    if codes:
        raise typer.Exit(exit_codes.FAILED if found else max(codes))
