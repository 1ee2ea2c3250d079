"""Placeholders of a job that is submitted many times: ``{job_id}``, ``{index}`` and ``{name}``.

They stand in its folders, its command and its variables, and are filled when it is taken in.
Nothing else in braces is touched, since commands are full of them. ``{{name}}`` becomes ``{name}``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.jobs.spec import JobSpec

_PLACEHOLDER: Final = re.compile(r"\{(\{(?:job_id|index|name)\})\}|\{(job_id|index|name)\}")


def filled(spec: JobSpec, *, job_id: str) -> JobSpec:
    """Return a job with its placeholders filled.

    ``{name}`` is the name as submitted, and ``{index}`` the position in the array; in a job that
    belongs to no array ``{index}`` is no placeholder.

    Args:
        spec: the job, or an element of an array.
        job_id: its id.
    """
    if not any("{" in text for text in _texts(spec)):
        return spec
    values = _values(spec) | {"job_id": job_id}
    env = {name: _filled(text, values) for name, text in spec.env.items()}
    return replace(
        spec,
        command=tuple(_filled(text, values) for text in spec.command),
        env=MappingProxyType(env),
        working_dir=_filled(spec.working_dir, values),
        checkpoint_dir=None
        if spec.checkpoint_dir is None
        else _filled(spec.checkpoint_dir, values),
        progress_file=None if spec.progress_file is None else _filled(spec.progress_file, values),
    )


def count_placeholders(spec: JobSpec) -> int:
    """Return how many there are: each may make a text longer by the longest name."""
    return sum(len(_PLACEHOLDER.findall(text)) for text in _texts(spec) if "{" in text)


def shareable_folder(spec: JobSpec) -> str | None:
    """Return the checkpoint folder that another job may have too.

    None if the job has no folder, or if the folder's name contains the id, which is not known yet.
    """
    folder = spec.checkpoint_dir
    if folder is None or any(match[2] == "job_id" for match in _PLACEHOLDER.finditer(folder)):
        return None
    return _filled(folder, _values(spec))


def needs_array(folder: str) -> bool:
    """Return whether a folder's name has ``{index}``."""
    return any(match[2] == "index" for match in _PLACEHOLDER.finditer(folder))


def _texts(spec: JobSpec) -> tuple[str, ...]:
    """Return the texts of a job in which placeholders may stand."""
    paths = (spec.working_dir, spec.checkpoint_dir or "", spec.progress_file or "")
    return (*paths, *spec.command, *spec.env.values())


def _values(spec: JobSpec) -> dict[str, str]:
    if spec.array_index is None:
        return {"name": spec.name}
    index = str(spec.array_index)
    return {"name": spec.name.removesuffix(f"[{index}]"), "index": index}


def _filled(text: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return match[1] or values.get(match[2], match[0])

    return _PLACEHOLDER.sub(value, text) if "{" in text else text
