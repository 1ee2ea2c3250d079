"""Fakes and other tools of the tests; `tests/support` is on the path: see pyproject.toml."""
