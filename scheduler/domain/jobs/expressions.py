"""Users' regular expressions, which find steps in a job's output: matched by RE2, within bounds.

RE2 takes time linear in the text for every expression; it has no lookaround and no backreferences.
The cost of an expression is bounded here by counts, so that a hostile one costs milliseconds to
compile, and some 100 ms to search a long line.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

from scheduler.errors import InputError

#: Longest expression, in characters.
LONGEST: Final = 500
#: Most repetitions in all, as in ``a{3}b{1,4}``: 7. RE2 writes each of them out.
MOST_REPETITIONS: Final = 1000
#: Most Unicode classes such as ``\\pL``: each takes 0.1 ms to read.
MOST_CLASSES: Final = 20
#: Memory of one compiled expression, for its program and for its state while it searches.
MEMORY_BYTES: Final = 2**18

_LACKS = (
    "RE2 has no lookahead, lookbehind, backreferences, atomic groups, possessive quantifiers, "
    "and of flags only i, m, s and U"
)
#: One piece of an expression: an escape, a class, a quantifier such as ``{1,3}``, any other sign.
_PIECE = re.compile(
    r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\{(\d*)(,?)(\d*)\}|.", re.DOTALL | re.ASCII
)


def progress_expression(pattern: str) -> Any:
    r"""Return an expression, compiled; its methods are those of ``re``.

    What Python and RE2 write differently is translated: ``\Z`` and ``{,3}``.

    Raises:
        InputError: RE2 does not know it, it would cost too much, or it has no group.
    """
    compiled = _compiled(_translated(pattern))
    if compiled.groups < 1:
        raise InputError("has no group; put the number of steps in one, such as step (\\d+)")
    return compiled


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else "no reason is given"
        words = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        if "too large" in words:
            raise InputError("takes too much memory; repeat less, or name fewer classes") from error
        raise InputError(f"is no regular expression of RE2: {words}; {_LACKS}") from error


def _translated(pattern: str) -> str:
    """Return the expression as RE2 writes it, unless it is beyond its bounds."""
    if len(pattern) > LONGEST:
        raise InputError(f"has {len(pattern)} characters; at most {LONGEST} are taken")
    pieces, repetitions = [], 0
    for piece in _PIECE.finditer(pattern):
        text = piece[0]
        least, comma, most = piece.groups(default="")
        if text == "\\Z":
            text = "\\z"
        elif comma and most and not least:
            text = f"{{0,{most}}}"
        repetitions += max((int(count) for count in (least, most) if count), default=0)
        pieces.append(text)
    if repetitions > MOST_REPETITIONS:
        raise InputError(
            f"repeats {repetitions} times in all; at most {MOST_REPETITIONS} are taken"
        )
    classes = len(re.findall(r"\\[pP]", pattern))
    if classes > MOST_CLASSES:
        raise InputError(f"names {classes} Unicode classes (\\p); at most {MOST_CLASSES} are taken")
    return "".join(pieces)
