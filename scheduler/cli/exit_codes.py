"""Exit codes: what a script that calls ``leasehold`` may rely on."""

from __future__ import annotations

from typing import Final

#: Some of several runs failed; they are named, the others' results are there.
FAILED: Final = 1
#: An input or an option cannot be used.
INPUT: Final = 2
#: Interrupted from the keyboard.
INTERRUPTED: Final = 130
