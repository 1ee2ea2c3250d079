"""The lines on standard error of a program that sets up logging as a whole process does."""

from __future__ import annotations

import contextlib
import io
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def logged(work: Callable[[], object]) -> list[str]:
    """Return the lines that some work logs, without the time; logging is as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with contextlib.redirect_stderr(io.StringIO()) as stream:
            work()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
        logging.getLogger("leasehold.access").setLevel(logging.NOTSET)
    return [line[line.find("Z") :] for line in stream.getvalue().splitlines()]
