"""Make jobs' output safe to show: it shows as text and has no other effect."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from re import Match

#: Longest escape sequence in bytes; a longer one does not count as a sequence.
_LONGEST: Final = 4096
#: Colours pass: they end with the output.
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*m")
_RESET: Final = "\x1b[0m"
#: Whole sequences: CSI (moves, clears, asks), and OSC, DCS, SOS, PM, APC with their text (titles,
#: links, the clipboard); then any character that cannot be seen.
_SEQUENCES: Final = re.compile(
    # The text of one does not begin another, so that finding them takes linear time.
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[]PX^_][^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x9b[0-?]*[ -/]*[@-~]|[\x90\x98\x9d-\x9f][^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    # Tab and line ends stay; directions of writing (bidi) would let text read otherwise.
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
#: A sequence that may go on in the next piece.
_BEGUN: Final = re.compile(
    r"(?:\x1b|\x1b\[[0-?]*[ -/]*|\x1b[]PX^_][^\x07\x1b\x90\x98\x9c-\x9f]*\x1b?"
    r"|\x9b[0-?]*[ -/]*|[\x90\x98\x9d-\x9f][^\x07\x1b\x90\x98\x9c-\x9f]*\x1b?)\Z"
)


class TerminalText:
    """Turns bytes of one stream, in pieces that may end anywhere, into text.

    Args:
        colours: whether the codes of colours pass, for a terminal.
    """

    def __init__(self, *, colours: bool = True) -> None:
        self._colours = colours
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._begun = ""
        self._coloured = False

    def feed(self, data: bytes) -> str:
        """Return the showable part of a piece; an unfinished sequence waits for its end."""
        text = self._begun + self._decoder.decode(data)
        found = _BEGUN.search(text)
        self._begun = ""
        if found is not None and len(found[0]) <= _LONGEST:
            text, self._begun = text[: found.start()], found[0]
        return self._fit(text)

    def end(self) -> str:
        """Return the held-back text, and the end of the colours."""
        text = self._fit(self._begun + self._decoder.decode(b"", final=True))
        self._begun = ""
        reset, self._coloured = (_RESET if self._coloured else ""), False
        return text + reset

    def _fit(self, text: str) -> str:
        return _SEQUENCES.sub(self._instead, text)

    def _instead(self, found: Match[str]) -> str:
        if self._colours and _COLOUR.fullmatch(found[0]):
            self._coloured = True
            return found[0]
        return "\N{REPLACEMENT CHARACTER}" if len(found[0]) == 1 else ""


def fit_for_terminal(text: str) -> str:
    """Return a text without control characters, but for tabs and line ends."""
    return _SEQUENCES.sub("\N{REPLACEMENT CHARACTER}", text)
