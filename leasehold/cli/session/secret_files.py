"""Files for secrets that are shown once."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, TypeAlias

import typer

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

Out: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Write the secret to a new file that only you may read, instead of printing it.",
    ),
]


@contextlib.contextmanager
def private_file(path: str | None) -> Iterator[IO[str] | None]:
    """Create a file that only its owner may read, before the secret is created.

    Raises:
        InputError: the file exists, or cannot be created.
    """
    if path is None:
        yield None
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"--out '{path}' exists; remove it, or name another file") from None
    except OSError as error:
        raise InputError(f"--out '{path}' cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        try:
            yield file
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise
