"""The version of the engine's rules."""

from __future__ import annotations

from typing import Final

#: Raised with every change by which the engine answers some inputs with other commands than before.
#: A start replays entries of its own version only, see ``adoption``. Releases before it had none,
#: which counts as 0.
DECIDER: Final = 10
