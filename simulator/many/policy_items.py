"""Policies as users list them: ``fifo,alpha_fairness:alpha=2,max_min_fairness+packed``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: A piece that begins a new policy; any other piece belongs to the parameters before it.
_BEGINS: Final = re.compile(r"[A-Za-z_][\w.-]*(?=$|[:+])")
_FLAGS: Final = {
    "packed": "space_sharing",
    "space_sharing": "space_sharing",
    "agnostic": "agnostic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyItem:
    """One policy of a list.

    Attributes:
        name: of the policy.
        params: text by parameter.
        agnostic: whether ``+agnostic`` was given.
        space_sharing: whether ``+packed`` was given.
    """

    name: str
    params: Mapping[str, str]
    agnostic: bool = False
    space_sharing: bool = False


def parse_policies(texts: Iterable[str]) -> list[PolicyItem]:
    """Parse lists of policies, each ``name[:key=value,...][+packed][+agnostic]``.

    Commas separate policies as well as parameters: a piece that does not begin like a policy
    continues the parameters of the one before.

    Raises:
        ParameterError: an item is malformed, or the list is empty or names one twice.
    """
    items: list[PolicyItem] = []
    for text in texts:
        items += [_item(piece) for piece in _pieces(text)]
    if not items:
        raise ParameterError("no policies given; name some: --policies fifo,max_min_fairness")
    for i, item in enumerate(items):
        if item in items[:i]:
            raise ParameterError(f"policy '{item.name}' is listed twice with the same options")
    return items


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if not pieces or _BEGINS.match(part):
            pieces.append(part)
        else:
            pieces[-1] += f",{part}"
    return [piece for piece in pieces if piece]


def _item(piece: str) -> PolicyItem:
    body, flags = piece, set[str]()
    while (head := body.rpartition("+"))[1] and head[2] in _FLAGS:
        body = head[0]
        flags.add(_FLAGS[head[2]])
    name, _, params = body.partition(":")
    if not _BEGINS.fullmatch(name):
        known = ", ".join(f"+{flag}" for flag in ("packed", "agnostic"))
        raise ParameterError(
            f"policy '{piece}' is not name[:key=value,...] with the options {known}"
        )
    return PolicyItem(
        name=name,
        params=_params(piece, params),
        agnostic="agnostic" in flags,
        space_sharing="space_sharing" in flags,
    )


def _params(piece: str, text: str) -> dict[str, str]:
    params: dict[str, str] = {}
    last = ""
    for part in text.split(",") if text else ():
        key, separator, value = part.partition("=")
        if separator and key.strip():
            last = key.strip()
            params[last] = value.strip()
        elif last:  # a value that is itself a list: thresholds=1,2,3
            params[last] += f",{part.strip()}"
        else:
            raise ParameterError(f"policy '{piece}': '{part}' is not key=value")
    return params
