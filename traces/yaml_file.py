"""Reading YAML strictly: no duplicate keys, and errors that name file and line."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from scheduler.errors import TraceError
from traces.files import read_text

if TYPE_CHECKING:
    import os

#: Values of a document with all aliases written out. 10,000 jobs with 50 each are half of it.
MOST_NODES = 1_000_000


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Return the document of a YAML file.

    Raises:
        TraceError: the file cannot be read, is no YAML, or has a key twice.
    """
    import yaml  # noqa: PLC0415  the command line starts faster without it

    class Strict(yaml.SafeLoader):
        """PyYAML lets the last of two equal keys win, which hides a slip."""

        def get_single_node(self) -> Any:
            node = super().get_single_node()
            check_expansion(node)
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, Hashable):
                    break  # the library refuses it with a message of its own
                if key in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key!r} is there twice; keep one",
                        problem_mark=key_node.start_mark,
                    )
                seen.add(key)
            return super().construct_mapping(node, deep)

    text = read_text(path)
    try:
        return yaml.load(text, Loader=Strict)  # noqa: S506  Strict is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise TraceError(
            f"the YAML is malformed: {error.problem or error.context}",
            path=str(path),
            line=mark.line + 1 if mark else None,
        ) from error
    except yaml.YAMLError as error:
        raise TraceError(f"the YAML is malformed: {error}", path=str(path)) from error
    except RecursionError:
        problem = "the YAML is nested too deeply to be read; a few levels will do"
        raise TraceError(problem, path=str(path)) from None
    except ValueError as error:
        raise TraceError(f"the YAML cannot be used: {error}", path=str(path)) from error


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
