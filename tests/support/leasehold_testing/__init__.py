"""Fakes and other tools of the tests; `tests/support` is on the path: see pyproject.toml."""

from pathlib import Path

#: Begins a program that runs in a process of its own and imports this package.
ON_PATH = f"import sys; sys.path.append({str(Path(__file__).resolve().parents[1])!r})\n"
