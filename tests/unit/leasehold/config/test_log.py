"""Lines for people, objects for programs."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings

import pytest

from api.redaction import RedactingFilter
from leasehold.log import set_up_logging

SECRET = "lh_0123456789abcdef"


@pytest.fixture
def log():
    """Set logging up on a stream, and put everything back afterwards."""
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    level, stream = root.level, io.StringIO()

    def log(**arguments):
        set_up_logging(stream=stream, **arguments)
        return stream

    yield log
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    logging.getLogger("leasehold.access").setLevel(logging.NOTSET)


def raise_and_log(text):
    try:
        int(text)
    except ValueError:
        logging.getLogger("leasehold.test").exception("it failed")


def test_a_line_has_time_severity_and_source(log):
    stream = log()
    logging.getLogger("leasehold.test").info("%d jobs", 3)
    logging.getLogger("leasehold.test").debug("not this")
    line = stream.getvalue()
    assert line.endswith("Z info leasehold.test: 3 jobs\n")
    assert line.count("\n") == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_control_sequences_are_shown_and_do_nothing(log, as_json):
    stream = log(as_json=as_json)
    made_up = "a\x1b]0;x\x07\x9b2J\r\u202eb\n2026-01-01T00:00:00.000Z error leasehold: forged"
    logging.getLogger("leasehold.test").warning("job %s", made_up)
    raise_and_log(made_up)
    written = stream.getvalue()
    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e"} & set(written)
    assert "\\u001b]0;x\\u0007\\u009b2J" in written
    # Made-up text begins no line.
    assert not any("forged" in line and line.startswith("2026-01") for line in written.splitlines())


def test_a_failure_carries_its_traceback(log):
    stream = log()
    raise_and_log("too many")
    assert "Traceback" in stream.getvalue()
    assert "ValueError: invalid literal for int() with base 10: 'too many'" in stream.getvalue()


def test_every_object_is_one_line(log):
    stream = log(as_json=True)
    raise_and_log("many\nlines")
    logging.getLogger("leasehold.test").warning("ü", extra={"request": {"status": 200}})
    failed, warned = (json.loads(line) for line in stream.getvalue().splitlines())
    assert failed["level"] == "error"
    assert failed["message"] == "it failed"
    assert r"many\nlines" in failed["exception"]
    assert warned["message"] == "ü"
    assert warned["request"] == {"status": 200}
    assert warned["logger"] == "leasehold.test"


@pytest.mark.parametrize("as_json", [False, True])
def test_filters_see_what_every_logger_says(log, as_json):
    stream = log(as_json=as_json, filters=(RedactingFilter(),))
    logging.getLogger("somebody.else").warning("token %s", SECRET)
    raise_and_log(SECRET)
    assert "lh_***" in stream.getvalue()
    assert SECRET not in stream.getvalue()


def test_requests_and_libraries_are_quiet_unless_asked_for(log):
    stream = log(requests=False)
    logging.getLogger("leasehold.access").info("GET /")
    logging.getLogger("httpx").info("GET /")
    logging.getLogger("uvicorn.error").info("Started")
    assert stream.getvalue() == ""
    log(requests=True)
    logging.getLogger("leasehold.access").info("GET /")
    assert "GET /" in stream.getvalue()


def test_warnings_of_libraries_are_logged(log):
    stream = log()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    # plotly before 6.7 puts the text on a line of its own.
    assert re.search(r"DeprecationWarning:\s+old\n", stream.getvalue())
