"""Users' expressions: RE2's features, missing ones, and the bound of cost."""

import pytest

from scheduler.domain.jobs.expressions import (
    LONGEST,
    MOST_CLASSES,
    MOST_REPETITIONS,
    progress_expression,
)
from scheduler.errors import InputError


@pytest.mark.parametrize(
    ("pattern", "text", "groups"),
    [
        (r"step (\d+)", "at step 12 of 90", ("12",)),
        (r"step (?P<steps>\d+)(?:, saved (?P<saved>\d+))?", "step 12", ("12", None)),
        (r"(?i)STEP\s+(\d+)", "step  7", ("7",)),
        (r"^(\d+)\Z", "31", ("31",)),
        (r"s{,2}(\d+)\Z", "ss4", ("4",)),
        (r"\{,3\}(\d)", "{,3}5", ("5",)),
        (r"[]{,3}](\d)", "}6", ("6",)),
        (r"größe (\d+)", "größe 8", ("8",)),
    ],
)
def test_what_a_pattern_finds_is_what_python_finds(pattern, text, groups):
    import re

    assert re.search(pattern, text).groups() == groups
    assert progress_expression(pattern).search(text).groups() == groups


@pytest.mark.parametrize(
    "pattern",
    [r"(?=step )(\d+)", r"(?<=step )(\d+)", r"(\d)\1", r"(?>a)(\d)", r"(\d)++", r"(?x) (\d)"],
)
def test_what_re2_lacks_is_refused_and_named(pattern):
    with pytest.raises(InputError, match="RE2 has no lookahead, lookbehind, backreferences"):
        progress_expression(pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "is no regular expression of RE2"),
        ("step", "has no group"),
        ("(" + "a" * LONGEST + ")", f"{LONGEST + 2} characters"),
        (r"(a{1,600}){1,1}b{500}", f"at most {MOST_REPETITIONS}"),
        ("(" + "a{900}" * 50 + ")", "repeats 45000 times"),
        ("(" + r"\pL" * (MOST_CLASSES + 1) + ")", f"at most {MOST_CLASSES}"),
        (r"((((\pL{10}){10}){10})a)", "too much memory|repetition"),
        ("(" + "{9" * 100 + ")", "."),
    ],
)
def test_an_expression_that_is_wrong_or_costs_too_much_is_refused(pattern, words):
    try:
        progress_expression(pattern)
    except InputError as error:
        import re

        assert re.search(words, str(error))  # noqa: PT017 - some may be taken, below
    else:
        assert words == "."


def test_what_kept_python_busy_for_ever_is_searched_at_once():
    assert progress_expression("((a+)+)b").search("a" * 4096) is None
