"""What a reader takes along: the same question for the command line and programs, and YAML."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import yaml

from api.pages.queries import write_query
from scheduler.domain.jobs.spec import JOB_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def as_command(*words: str) -> str:
    """Return a call of the command line, quoted for a shell."""
    return shlex.join(("leasehold", *words))


def as_curl(path: str, query: Mapping[str, str | Iterable[str]]) -> str:
    """Return a call of the REST interface, for a shell with the two variables of the client.

    Args:
        path: below ``/v1/``, quoted for a URL.
        query: names and values; empty values are left out.
    """
    url = f"$LEASEHOLD_SERVER/v1/{path}{write_query(query).removesuffix('?')}"
    return f'curl -H "Authorization: Bearer $LEASEHOLD_TOKEN" "{url}"'


def options(given: Mapping[str, str | Iterable[str]]) -> list[str]:
    """Return options with their values, ``--name value`` once for each value."""
    return [
        word
        for name, values in given.items()
        for value in ([values] if isinstance(values, str) else values)
        if value
        for word in (f"--{name}", value)
    ]


def write_yaml(job: Mapping[str, Any]) -> str:
    """Write a job as YAML, its fields in their order."""
    text = yaml.dump(
        dict(job),
        Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )
    return str(text)


def as_asked(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification by the fields of a request, without those with defaults."""
    found = {
        one.name: spec[one.attribute]
        for one in JOB_FIELDS
        if spec.get(one.attribute) not in (None, "", [], {}, one.default)
    }
    counts = found.pop("scale_factor", None) or (1,)
    if "max_workers" not in found and tuple(counts) != (1,):
        found["scale_factor"] = counts[0] if len(counts) == 1 else list(counts)
    return found
