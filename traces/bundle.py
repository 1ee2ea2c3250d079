"""Files that come with the package: traces, a throughput table, models, prices, clusters."""

from __future__ import annotations

import os
from pathlib import Path

from scheduler.errors import InputError

_FILES = {
    "small": "small.csv",
    "throughputs": "throughputs.csv",
    "prices": "prices.yaml",
    "cluster": "cluster.yaml",
    "planned": "planned.csv",
    "models": "models.yaml",
    "mixed": "mixed.yaml",
}
_WORD = "bundled"
#: What a file is read as -> the argument that names it.
_KINDS = {
    "small": "trace",
    "throughputs": "throughputs",
    "cluster": "cluster",
    "models": "models",
}

#: Names that ``bundled`` accepts: a trace, a throughput table, prices and a cluster; and a trace of
#: jobs that give their model, these models, and a cluster for them.
BUNDLED = tuple(_FILES)


def bundled(name: str) -> Path:
    """Return the path of a file that comes with the package.

    Args:
        name: one of ``BUNDLED``.

    Raises:
        InputError: there is no such file.
    """
    if name not in _FILES:
        raise InputError(f"nothing is bundled as '{name}'; there is {', '.join(BUNDLED)}")
    return Path(__file__).parent / "data" / _FILES[name]


def resolve(path: str | os.PathLike[str], *, usual: str) -> str:
    """Return the path; ``bundled`` and ``bundled:NAME`` stand for files of the package.

    Args:
        path: the user's text.
        usual: the name that ``bundled`` alone stands for.

    Raises:
        InputError: it is no path, or the package has no file of that name.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        spec = ", a spec such as 'v100:4'" if usual == "cluster" else ""
        raise InputError(
            f"{_KINDS[usual]} is {path!r}; give the path of a file{spec}, or 'bundled'"
        )
    text = os.fspath(path)
    word, separator, name = text.partition(":")
    if word != _WORD or Path(text).exists():
        return text
    return str(bundled(name if separator else usual))
