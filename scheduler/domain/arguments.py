"""Check numbers that programs pass: the name, the value and what it must be."""

from __future__ import annotations

import math
from numbers import Integral

import numpy as np

from scheduler.errors import ParameterError


def check_whole(name: str, value: object, *, least: int) -> None:
    """Refuse a value that is no whole number, or too small.

    Raises:
        ParameterError: names argument and value.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ParameterError(f"{name} is {value!r}; it must be a whole number >= {least}")


def check_positive(name: str, value: object, *, unit: str = "", finite: bool = True) -> None:
    """Refuse a value that is no number above 0; infinity passes only if ``finite`` is off.

    Raises:
        ParameterError: names argument and value.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.number)
        or not value > 0
        or (finite and math.isinf(value))
    ):
        raise ParameterError(f"{name} is {value!r}{unit}; it must be a number > 0")
