"""The version of the engine's rules."""

from __future__ import annotations

from typing import Final

#: Increased by every change after which the engine answers some inputs with other commands. A start
#: replays only journal entries of its own version, see ``adoption``. Entries of releases without a
#: version count as 0.
DECIDER: Final = 13
