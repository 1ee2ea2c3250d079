"""Reading YAML strictly: no duplicate keys, and errors that name file and line."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from scheduler.domain.jobs.documents import check_expansion, with_plain_numbers
from scheduler.errors import TraceError
from traces.files import read_text

if TYPE_CHECKING:
    import os


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Return the document of a YAML file.

    Raises:
        TraceError: the file cannot be read, is not YAML, or has a key twice.
    """
    import yaml  # noqa: PLC0415  the command line starts faster without it

    class Strict(yaml.SafeLoader):
        """Loader that refuses duplicate keys; PyYAML alone keeps the last of them silently."""

        def get_single_node(self) -> Any:
            node = super().get_single_node()
            check_expansion(node)
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, Hashable):
                    break  # the library refuses it with its own message
                if key in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key!r} is there twice; keep one",
                        problem_mark=key_node.start_mark,
                    )
                seen.add(key)
            return super().construct_mapping(node, deep)

    text = read_text(path)
    try:
        return yaml.load(text, Loader=with_plain_numbers(Strict))  # noqa: S506  it is a safe one
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
