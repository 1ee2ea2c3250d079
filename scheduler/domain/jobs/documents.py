"""How large a hand-written document may become. Without numpy: jobs are read anywhere."""

from __future__ import annotations

from typing import Any

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
