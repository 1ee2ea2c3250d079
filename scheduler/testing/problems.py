"""Moved to ``policies.testing``; this name goes with the next release."""

from __future__ import annotations

import warnings

from policies.testing import make_problem, make_table

__all__ = ["make_problem", "make_table"]

warnings.warn(
    "scheduler.testing.problems has moved; import both of its names from policies.testing",
    DeprecationWarning,
    stacklevel=2,
)
