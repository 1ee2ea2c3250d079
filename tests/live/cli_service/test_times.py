"""Times, sizes and figures as people write and read them."""

from __future__ import annotations

import math
import time
from datetime import datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli.display.output import format_number, plain_cell
from leasehold.cli.session.follow import format_figures
from scheduler.errors import InputError
from scheduler.views.job_documents import parse_size
from scheduler.views.times import (
    format_ago,
    format_moment,
    format_span,
    format_when,
    parse_moment,
    parse_past,
    parse_span,
)


@pytest.mark.parametrize(("text", "seconds"), [
    ("90", 90), ("1.5", 1.5), ("45s", 45), ("10m", 600), ("10min", 600), ("1h30m", 5400),
    ("1h 30m", 5400), ("2d", 172800), ("1w", 604800), (".5h", 1800), (" 3 sec ", 3), ("2H", 7200),
    ("2 hours", 7200), ("1 day 12 hrs", 129600), ("90 minutes", 5400),
])  # fmt: skip
def test_spans_are_read(text, seconds):
    assert parse_span(text, name="x") == seconds


@pytest.mark.parametrize("text", [
    "", " ", "h", "5x", "-3s", "1h30", "1h-2m", "soon", "nan", "1M", "1h1h", "30m1h", "18:30",
    "inf", "P1D", "\N{ARABIC-INDIC DIGIT THREE}h",
])  # fmt: skip
def test_what_is_no_span_is_named(text):
    with pytest.raises(InputError, match="--x is"):
        parse_span(text, name="--x")


def test_moments_are_spans_from_now_or_dates():
    assert parse_moment("2h", now_s=100.0, name="x") == 7300.0
    assert parse_moment("1970-01-02T00:00:00+00:00", now_s=0.0, name="x") == 86400.0
    with pytest.raises(InputError, match=r"x is '31\.12\.'"):
        parse_moment("31.12.", now_s=0.0, name="x")


@pytest.fixture
def in_berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(("text", "words"), [
    ("18:30", "give a span from now such as 2h, or a time such as"),
    ("1796000000", "seconds from now, seconds since 1970, or a date"),
    ("1796000000.5", "seconds from now, seconds since 1970, or a date"),
    ("20261224", "seconds from now, seconds since 1970, or a date"),
    ("202612241800", "seconds from now, seconds since 1970, or a date"),
    ("2026", "could be seconds or a year; give 2026s, or a time such as"),
    ("2027-03-28T02:30", "skip that time; give another one, or one with its zone"),
    ("2026-10-25 02:30", "twice; give 2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00"),
])  # fmt: skip
def test_a_moment_that_could_mean_two_things_is_refused_with_the_form_to_use(text, words):
    for read in (parse_moment, parse_past):
        with pytest.raises(InputError) as told:
            read(text, now_s=1_795_000_000.0, name="--deadline")
        assert f"--deadline is '{text}'" in str(told.value)
        assert words in str(told.value).replace("before now", "from now")


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(("text", "same"), [
    ("2027-03-28T03:30", "2027-03-28T01:30Z"), ("2026-10-25T02:30+01:00", "2026-10-25T01:30Z"),
    ("2026-12-24", "2026-12-23T23:00Z"), ("2026-12-24 18:00:00", "2026-12-24T17:00Z"),
])  # fmt: skip
def test_a_time_without_a_zone_is_local(text, same):
    read = partial(parse_moment, now_s=0.0, name="x")
    assert read(text) == read(same) == datetime.fromisoformat(same).timestamp()


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (3599.7, "1h00m"), (7500, "2h05m"),
    (86399.9, "1d00h"), (273600, "3d04h"), (-5, "-5s"), (None, ""), (math.inf, ""),
])  # fmt: skip
def test_spans_are_written_with_two_units(seconds, text):
    assert format_span(seconds) == text


@given(st.integers(min_value=0, max_value=10**9))
def test_a_span_that_was_written_is_read_back_to_within_its_smaller_unit(seconds):
    unit = 1 if seconds < 3600 else 60 if seconds < 86400 else 3600
    assert abs(parse_span(format_span(seconds), name="x") - seconds) < unit


def test_the_past_has_an_age_and_the_future_a_wait():
    assert format_ago(90.0, 100.0) == "10s"
    assert format_ago(160.0, 100.0) == "in 1m00s"
    assert format_ago(100.5, 100.0) == "0s"
    assert format_ago(None, 100.0) == ""


@pytest.mark.parametrize(("text", "size"), [
    ("512", 512), ("1K", 1024), ("1.5g", 3 * 2**29), ("4GiB", 2**32), ("2mb", 2**21), ("1t", 2**40),
    ("100b", 100), ("4 GiB", 2**32),
])  # fmt: skip
def test_sizes_are_read(text, size):
    assert parse_size(text, name="x") == size


@pytest.mark.parametrize("text", ["", "GiB", "0", "-1", "1x", "1.2.3"])
def test_what_is_no_size_is_named(text):
    with pytest.raises(InputError, match="x is"):
        parse_size(text, name="x")


def test_figures_and_cells():
    assert [format_number(x) for x in (None, 3.0, 0.12345, 12345.6)] == ["", "3", "0.123", "12,346"]
    assert [plain_cell(x) for x in (None, True, False, 0.5, "a\x1b[31mb")] == [
        "", "yes", "no", "0.5", "a\N{REPLACEMENT CHARACTER}[31mb",
    ]  # fmt: skip


def test_a_time_says_whether_it_is_past_or_to_come():
    assert format_when(100.0, 40.0).endswith("(in 1m00s)")
    assert format_when(40.0, 100.0).endswith("(1m00s ago)")
    assert format_when(None, 100.0) == ""


@pytest.mark.parametrize("name", ["deadline_s", "from_s", "until_s"])
def test_times_in_the_history_are_written_as_people_read_them(name):
    shown = format_figures({name: 1_795_473_421.0, "reason": "late"})
    assert shown == f"{name}={format_moment(1_795_473_421.0)} reason=late"
    assert shown.startswith(f"{name}=2026-11-2")
    assert format_figures({name: None, "lease": 3}) == "lease=3"


def test_the_identifier_of_an_end_is_written_in_words():
    assert format_figures({"reason": "too_many_node_fault"}) == "reason=too many node faults"
    assert format_figures({"reason": "idle"}) == "reason=idle", "a user's own word"


def test_the_workers_of_a_lease_are_counted_in_the_history():
    told = {"workers": [0, 3], "nodes": ["n"]}
    assert format_figures({"lease": 1, **told}) == "lease=1 workers=2 nodes=n"
    assert format_figures(told) == "workers=0,3 nodes=n"
