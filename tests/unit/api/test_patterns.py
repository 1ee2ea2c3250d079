"""Texts in requests: every pattern has words, and the words are true of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from api import patterns
from api.app import create_app
from api.patterns import IN_WORDS
from api.problems import field_problems
from api.settings import ApiSettings
from leasehold_testing.service import FakeService

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How the headers of agents begin; pydantic does not check them.
AGENTS = "X-Leasehold-"


def patterns_in(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        if document.get("in") == "header" and document["name"].startswith(AGENTS):
            return
        if isinstance(document.get("pattern"), str):
            yield document["pattern"]
        document = document.values()
    if isinstance(document, str) or not hasattr(document, "__iter__"):
        return
    for part in document:
        yield from patterns_in(part)


def test_every_pattern_of_the_interface_has_words():
    document = create_app(FakeService(), ApiSettings(auth=False)).openapi()
    found = set(patterns_in(document))
    assert len(found) > 8
    assert found <= IN_WORDS.keys()


@pytest.mark.parametrize("pattern", IN_WORDS)
def test_a_text_that_does_not_match_is_refused_in_words(pattern):
    error = {
        "type": "string_pattern_mismatch",
        "loc": ("body", "name"),
        "msg": "String should match pattern",
        "input": "\x01",
        "ctx": {"pattern": pattern},
    }
    (problem,) = field_problems([error])
    assert problem.problem.startswith("must ")
    assert not re.search(r"[\^$\\]", problem.problem)


@pytest.mark.parametrize(
    "pattern",
    [
        patterns.NAME,
        patterns.SUBJECT,
        patterns.JOB_ID,
        patterns.WORKER_TYPE,
        patterns.LABEL_KEY,
        patterns.IMAGE,
        patterns.VARIABLE,
    ],
)
def test_the_signs_in_the_words_are_those_that_the_pattern_allows(pattern):
    expression, words = re.compile(pattern), IN_WORDS[pattern]
    signs = {*re.findall(r"'(.)'", words)} | ({" "} if "and spaces" in words else set())
    allowed = {c for c in map(chr, range(32, 127)) if expression.match(f"a{c}")}
    assert {c for c in allowed if not c.isalnum()} == signs
    assert {c for c in map(chr, range(32, 127)) if c.isalnum()} < allowed
    first = {c for c in map(chr, range(32, 127)) if expression.match(c)}
    assert first == {c for c in map(chr, range(32, 127)) if c.isalnum()} or pattern == (
        patterns.VARIABLE
    )
