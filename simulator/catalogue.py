"""The catalogue of accelerators, with those of a user's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.plans.hardware import read_hardware
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    import os

    from planner.plans.hardware import Hardware


def read_catalogue(path: str | os.PathLike[str] | None) -> Hardware:
    """Return the bundled accelerators, with those of a user's file in front.

    Raises:
        InputError: the file cannot be read, or a value cannot be used.
    """
    if path is None:
        return read_hardware()
    own = read_yaml(path)
    return read_hardware({} if own is None else own, place=str(path))
