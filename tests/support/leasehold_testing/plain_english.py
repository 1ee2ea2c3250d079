"""Rates of turns that are hard to read in docstrings and comments, per 1,000 words.

    python -m leasehold_testing.plain_english [FOLDER]...      (`make prose`)

A fault names a turn if its rate is beyond its bound, and quotes the sentences with most turns.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import leasehold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOURCES: Final = Path(leasehold.__file__).resolve().parents[1]
PACKAGES: Final = (
    *("scheduler", "policies", "planner", "simulator"),
    *("traces", "agent", "api", "leasehold"),
)
#: Turn -> words that make it, and its bound per 1,000 words.
AT_MOST: Final = {
    "who": (r"who|whom|whose|whoever", 0.5),
    "nobody": (r"nobody|somebody|anybody|everybody", 0.2),
    "what without a noun": (r"what (?:is|are|was|has|it|they|must|can|could|would|may|there)", 0.3),
    "where for if": (
        r"where (?:it|there|they|nobody|somebody|that|a|an|the|no|one|some|what)",
        0.5,
    ),
    "told": (r"told|tell|tells|telling", 0.5),
}
#: Turns of plain text.
AT_LEAST: Final = {"if": (r"if", 6.0)}
#: Sentences that a fault quotes.
_QUOTED: Final = 5
#: Up to a full stop, an empty line, or the next argument or attribute.
_SENTENCE: Final = re.compile(r"\S.*?(?:[.?!](?=\s)|\n\s*\n|\n(?=\s*\w+: )|\Z)", re.DOTALL)
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence of a docstring or a comment, with its place."""

    file: Path
    line: int
    text: str

    def count(self, words: str) -> int:
        """Return how often the sentence has one of the words."""
        return len(re.findall(rf"\b(?:{words})\b", self.text, re.IGNORECASE))


def _passages(source: str) -> Iterator[tuple[int, str]]:
    """Yield first line and text of each docstring, and of each block of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            yield node.body[0].lineno, ast.get_docstring(node, clean=False) or ""
    block: list[str] = []
    end = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != end + 1:
                yield end - len(block) + 1, "\n".join(block)
                block = []
            block.append(token.string.lstrip("#: "))
            end = token.start[0]
    if block:
        yield end - len(block) + 1, "\n".join(block)


def sentences(files: Iterable[Path]) -> Iterator[Sentence]:
    """Yield the sentences of Python files."""
    for file in files:
        for line, text in _passages(file.read_text(encoding="utf-8")):
            for found in _SENTENCE.finditer(text):
                at = line + text.count("\n", 0, found.start())
                yield Sentence(file=file, line=at, text=" ".join(found[0].split()))


def faults(name: str, files: Iterable[Path]) -> list[str]:
    """Return a line for each turn beyond its bound, followed by the sentences to change first."""
    read = list(sentences(files))
    words = sum(len(re.findall(r"[A-Za-z']+", sentence.text)) for sentence in read) or 1
    found = []
    for turn, (pattern, bound) in (AT_MOST | AT_LEAST).items():
        rate = 1000 * sum(sentence.count(pattern) for sentence in read) / words
        if rate >= bound if turn in AT_MOST else rate <= bound:
            side = "below" if turn in AT_MOST else "above"
            found.append(f"{name}: '{turn}' {rate:.2f} per 1,000 words; keep it {side} {bound}")
            if turn in AT_MOST:
                worst = sorted((s for s in read if s.count(pattern)), key=lambda s: -_turns(s))
                found += [f"  {s.file}:{s.line}: {s.text}" for s in worst[:_QUOTED]]
    return found


def _turns(sentence: Sentence) -> int:
    return sum(sentence.count(pattern) for pattern, _ in AT_MOST.values())


def main() -> int:
    """Print the faults of folders; 1 if there are any."""
    folders = [Path(name) for name in sys.argv[1:]] or [SOURCES / name for name in PACKAGES]
    found = [f for folder in folders for f in faults(folder.name, sorted(folder.rglob("*.py")))]
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
