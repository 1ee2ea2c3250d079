"""Fail, or leave, until a file has so many lines: until.py FILE LINES CODE. Each start adds one."""

from __future__ import annotations

import sys
from pathlib import Path

file, lines, code = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with file.open("a") as stream:
    stream.write("started\n")
if len(file.read_text().splitlines()) < lines:
    sys.exit(code)
print("at last", flush=True)
