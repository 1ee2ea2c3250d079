"""Run a notebook from top to bottom and keep its output: ``make notebook``, and its test."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT_S = 300


def execute(notebook: Path, folder: Path) -> Any:
    """Return the notebook with new outputs.

    Args:
        notebook: the file.
        folder: where its program runs.

    Raises:
        CellExecutionError: a cell raised.
    """
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    loaded: Any = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as sockets:
        # Another process may take ports between their choice and their use.
        ways = {"transport": "ipc", "ip": str(Path(sockets, "kernel"))}
        client = NotebookClient(
            loaded,
            kernel_name="python3",
            config=Config({"AsyncKernelManager": ways}),
            timeout=_TIMEOUT_S,
            record_timing=False,  # times would differ from run to run
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute()
    for cell in loaded.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_empty(output)]
    return loaded


def shown(loaded: Any) -> Iterator[tuple[str, str]]:
    """Yield the notebook's output: kind and text."""
    for cell in loaded.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                yield output.name, output.text
            else:
                yield from sorted(output.data.items())


def _is_empty(output: Any) -> bool:
    """Whether it is a bar of progress that has gone."""
    return output.output_type == "display_data" and not any(output.data.values())


def main() -> None:
    """Write the outputs into the notebook, or into another file."""
    import nbformat

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, help="the notebook itself by default")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the program runs")
    given = parser.parse_args()
    loaded = execute(given.notebook, given.folder)
    nbformat.write(loaded, given.out or given.notebook)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
