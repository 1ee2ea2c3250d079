"""Types of the fields of messages: msgspec reads JSON within the bounds that they state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from scheduler.domain.lease_life import LeasePhase
from scheduler.protocol import bounds

#: Allowed texts: as arguments of programs, as lines, and as names of variables.
_TEXT: Final = r"\A[^\x00\ud800-\udfff]*\Z"
_LINE: Final = r"\A[^\x00-\x1f\x7f-\x9f\ud800-\udfff]+\Z"
ABSOLUTE: Final = r"\A/[^\x00\ud800-\udfff]*\Z"
_VARIABLE: Final = r"\A[^=\x00\ud800-\udfff]+\Z"
Count = Annotated[int, Meta(ge=0, le=bounds.MOST_COUNT)]
Positive = Annotated[int, Meta(ge=1, le=bounds.MOST_COUNT)]
Time = Annotated[float, Meta(ge=-bounds.LATEST_S, le=bounds.LATEST_S)]
Seconds = Annotated[float, Meta(ge=0.0, le=bounds.LONGEST_S)]
Elapsed = Annotated[float, Meta(ge=0.0, le=bounds.LATEST_S)]
Text = Annotated[str, Meta(min_length=1, max_length=bounds.LONGEST_TEXT, pattern=_TEXT)]
Argument = Annotated[str, Meta(max_length=bounds.LONGEST_TEXT, pattern=_TEXT)]
Variable = Annotated[str, Meta(max_length=bounds.LONGEST_TEXT, pattern=_VARIABLE)]
Path = Annotated[str, Meta(min_length=1, max_length=bounds.LONGEST_PATH, pattern=_TEXT)]
MaybePath = Annotated[str, Meta(max_length=bounds.LONGEST_PATH, pattern=_TEXT)]
Id = Annotated[str, Meta(max_length=bounds.LONGEST_ID, pattern=_TEXT)]
Name = Annotated[str, Meta(max_length=bounds.LONGEST_NAME, pattern=_TEXT)]
Word = Annotated[str, Meta(max_length=bounds.LONGEST_WORD, pattern=_TEXT)]
NameLine = Annotated[str, Meta(max_length=bounds.LONGEST_NAME, pattern=_LINE)]
WordLine = Annotated[str, Meta(max_length=bounds.LONGEST_WORD, pattern=_LINE)]
Counts = Annotated[tuple[Count, ...], Meta(max_length=bounds.MOST_ITEMS)]
Workers = Annotated[tuple[Count, ...], Meta(max_length=bounds.MOST_WORKERS)]
Texts = Annotated[tuple[Argument, ...], Meta(max_length=bounds.MOST_ITEMS)]
Environment = Annotated[Mapping[Variable, str], Meta(max_length=bounds.MOST_ITEMS)]
#: Phases of leases that agents report.
PHASES: Final = (LeasePhase.STARTING, LeasePhase.RUNNING, LeasePhase.STOPPING, LeasePhase.ENDED)
#: Words of msgspec, and ours.
WORDS: Final = {
    "Number out of range": "a finite number",
    "Invalid base64 encoded string": "base64",
    f"matching regex {_TEXT!r}": "without NUL and halves of characters",
    f"matching regex {_LINE!r}": "without control characters",
    f"matching regex {ABSOLUTE!r}": "that is an absolute path",
    f"matching regex {_VARIABLE!r}": "without '=' and NUL, not empty",
}
