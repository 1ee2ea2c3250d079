"""Hand-written YAML: how large it may become, and what its numbers are.

Without numpy: jobs are read anywhere.
"""

from __future__ import annotations

import re
from typing import Any, Final

_INTEGER: Final = re.compile(r"^(?:[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+|0b[01_]+)$")
_FLOAT: Final = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
_TAG: Final = "tag:yaml.org,2002:"

#: Values of a document with all aliases written out. 10,000 jobs with 50 each are half of it.
MOST_NODES = 1_000_000


def check_expansion(root: Any) -> None:
    """Refuse a document that becomes too large, or endless, once its aliases are written out.

    A kilobyte of aliases of lists of aliases stands for more than any memory holds.

    Args:
        root: node of a YAML document, of which nothing has been made yet; None for an empty one.

    Raises:
        ValueError: it is one.
    """
    if root is None:
        return
    sizes: dict[int, int] = {}
    path: set[int] = set()
    left: list[tuple[Any, bool]] = [(root, False)]
    while left:
        node, is_back = left.pop()
        parts = [] if isinstance(node.value, str) else node.value
        if parts and isinstance(parts[0], tuple):
            parts = [part for pair in parts for part in pair]
        if is_back:
            path.discard(id(node))
            sizes[id(node)] = size = 1 + sum(sizes[id(part)] for part in parts)
            if size > MOST_NODES:
                raise ValueError(
                    f"line {node.start_mark.line + 1} stands for more than {MOST_NODES} values "
                    "once its aliases are written out; use fewer, or several files"
                )
        elif id(node) in path:
            raise ValueError(
                f"line {node.start_mark.line + 1} contains itself by an alias; write it out"
            )
        elif id(node) not in sizes:
            path.add(id(node))
            left.append((node, True))
            left += ((part, False) for part in parts)


def with_plain_numbers(loader: type[Any]) -> type[Any]:
    """Return a loader of PyYAML that reads as numbers only what people mean as numbers.

    YAML 1.1 takes 18:30 for 1110 and 010 for 8. These stay text here, as in YAML 1.2.

    Args:
        loader: a safe one.
    """

    class Plain(loader):  # type: ignore[misc]  # it is not known before
        """The loader with other rules for numbers."""

    numbers = {f"{_TAG}int", f"{_TAG}float"}
    Plain.yaml_implicit_resolvers = {
        first: [rule for rule in rules if rule[0] not in numbers]
        for first, rules in loader.yaml_implicit_resolvers.items()
    }
    Plain.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+0123456789."))
    Plain.add_implicit_resolver(f"{_TAG}int", _INTEGER, list("-+0123456789"))
    return Plain
