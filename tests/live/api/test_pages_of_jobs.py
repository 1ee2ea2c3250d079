"""Jobs and their output: groups, times, a change of weight, throughput, cost, and search."""

from __future__ import annotations

import dataclasses
import re
from html import unescape
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from api.pages import output
from api.pages.output import Lines
from scheduler.clock import WallClock
from scheduler.domain.rows import HistoryRow
from scheduler.domain.throughputs.ways import Estimate, Source, Way
from scheduler.logs.following import OutputReader
from scheduler.logs.logbook import LogBook
from scheduler.logs.output import LogChunk, LogWanted, StoredLog

if TYPE_CHECKING:
    from pathlib import Path

HOUR_S = 3600.0


def plain(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def rows(page: Any, label: str) -> list[list[str]]:
    """Return the texts of a table's cells."""
    table = re.search(rf'aria-label="{label}">(.*?)</table>', page.text, re.DOTALL)
    assert table, label
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", table[1], re.DOTALL)[1:]
    return [
        [plain(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", r, re.DOTALL)] for r in found
    ]


def fact(page: Any, name: str) -> str:
    """Return a figure of a job."""
    found = re.search(rf"<dt>{name}</dt><dd>(.*?)</dd>", page.text)
    return plain(found[1]) if found else ""


def wait(daemon: Any, seconds: float) -> None:
    daemon.service.now_s += seconds
    daemon.clock.seconds = daemon.service.now_s


def stamp(page: Any, name: str) -> str:
    found = re.search(rf"<dt>{name}</dt><dd><time datetime=\"([^\"]+)\"", page.text)
    return found[1] if found else ""


# -- the list --------------------------------------------------------------------------------------


def test_jobs_are_counted_by_project_owner_or_type_and_each_count_leads_to_its_jobs(
    daemon: Any,
) -> None:
    ann, bob = daemon.caller("user", subject="ann"), daemon.caller("user", subject="bob")
    first = ann.submit(project="vision", job_type="a, b")
    for _ in range(2):
        bob.submit(project="speech")
    daemon.service.run(first)
    browser = daemon.browser("viewer")
    page = browser.get("/jobs?group=project")
    assert rows(page, "Jobs by project") == [["speech", "2", "", "2"], ["vision", "", "1", "1"]]
    assert rows(browser.get("/jobs?group=owner&project=speech"), "Jobs by owner") == [
        ["bob", "2", "2"]
    ]
    links = [unescape(one) for one in re.findall(r'<td[^>]*><a href="(\?[^"]+)">', page.text)]
    for link in links:
        jobs = re.findall(r'<tr id="job-([^"]+)"', browser.get(f"/jobs{link}").text)
        assert jobs, link
    kinds = browser.get("/jobs?group=job_type&owner=ann")
    (link,) = re.findall(r'<tr><td><a href="([^"]+)">a, b</a>', kinds.text)
    assert re.findall(r'<tr id="job-([^"]+)"', browser.get(f"/jobs{unescape(link)}").text) == [
        first
    ]
    assert "No job matches" in browser.get("/jobs?group=owner&owner=nobody").text


def test_a_confined_reader_counts_the_jobs_of_its_projects(daemon: Any) -> None:
    admin = daemon.caller("admin")
    admin.submit(project="vision")
    admin.submit(project="speech")
    everybody, confined = daemon.browser("viewer"), daemon.browser("viewer", projects=("vision",))
    assert len(rows(everybody.get("/jobs?group=project"), "Jobs by project")) == 2
    assert rows(confined.get("/jobs?group=project"), "Jobs by project") == [["vision", "1", "1"]]
    other = daemon.browser("viewer", subject="other", projects=("speech",))
    assert rows(other.get("/jobs?group=project"), "Jobs by project") == [["speech", "1", "1"]]


def test_many_groups_are_cut_and_said(daemon: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("api.pages.jobs.MOST_GROUPS", 2)
    for index in range(5):
        daemon.caller("admin").submit(project=f"p{index}")
    page = daemon.browser("viewer").get("/jobs?group=project")
    assert [row[0] for row in rows(page, "Jobs by project")] == ["p0", "p1"]
    assert "3 more are left out here" in page.text


def test_the_list_says_since_when_and_when_a_waiting_job_starts(daemon: Any) -> None:
    first = daemon.caller("admin").submit(name="first")
    wait(daemon, HOUR_S)
    second = daemon.caller("admin").submit(name="second")
    daemon.service.run(first)
    page = daemon.browser("viewer").get("/jobs?sort=submitted")
    parts = dict(zip((first, second), page.text.split('<tr id="job-')[1:], strict=True))
    assert "starts <time" not in parts[first]
    assert 'starts <time datetime="1970-01-12T15:46:40Z"' in parts[second]  # the fake's hour
    job = daemon.browser("viewer").get(f"/jobs/{second}")
    assert stamp(job, "since") == stamp(job, "submitted") == "1970-01-12T14:46:40Z"
    answer = daemon.caller("viewer").get(f"/v1/jobs/{second}").json()
    assert answer["since_s"] == answer["submitted_s"]
    listed = daemon.caller("viewer").get("/v1/jobs").json()["jobs"]
    assert {job["job_id"]: job["since_s"] for job in listed}[second] == answer["since_s"]
    daemon.service.leading = False
    assert "starts <time" not in daemon.browser("viewer").get("/jobs").text


def test_since_when_a_job_has_its_status_is_not_guessed(daemon: Any) -> None:
    admin = daemon.caller("admin")
    held, ran = admin.submit(name="held"), admin.submit(name="ran")
    wait(daemon, HOUR_S)
    admin.post(f"/v1/jobs/{held}/hold")
    now_s = daemon.service.now_s
    line = HistoryRow(at_s=now_s, kind="job_held", subject_kind="job", subject=held, actor="admin")
    daemon.service.store.append_history((line,))
    daemon.service.run(ran)

    def since() -> list[float | None]:
        caller = daemon.caller("viewer")
        return [caller.get(f"/v1/jobs/{job}").json()["since_s"] for job in (held, ran)]

    begin_s = daemon.service.now_s
    wait(daemon, HOUR_S)
    assert since() == [begin_s, begin_s]
    daemon.service.store.prune_history(daemon.service.now_s, limit=1000)
    assert since() == [None, begin_s]  # a lease knows its start
    assert stamp(daemon.browser("viewer").get(f"/jobs/{held}"), "since") == ""
    daemon.service.finish(ran)
    assert since() == [None, daemon.service.now_s]


def test_the_same_list_by_command_and_by_curl(daemon: Any) -> None:
    browser = daemon.browser("viewer")
    page = unescape(browser.get("/jobs?status=waiting&status=running&label=a%3Db").text)
    assert "leasehold jobs --status waiting,running --label a=b" in page
    assert "/v1/jobs?status=waiting&status=running&label=a%3Db" in page
    assert 'class="copies"' not in browser.get("/jobs?group=owner").text
    typed = unescape(browser.get("/jobs?job_type=a%2C%20b").text)
    assert "leasehold jobs" not in typed.split('class="copies"')[1]
    assert "/v1/jobs?job_type=a%2C+b" in typed
    events = unescape(browser.get("/events?about=node&by=ann").text)
    assert "/v1/events?subject_kind=node&actor=ann&descending=true" in events


# -- a job -----------------------------------------------------------------------------------------


def test_weight_and_deadline_are_changed_and_what_stayed_in_the_form_changes_nothing(
    daemon: Any,
) -> None:
    due_s = 1_790_000_000.1234567  # an isoformat has microseconds
    job = daemon.caller("admin").submit(weight=2.5, deadline_s=due_s)
    browser = daemon.browser("user")
    form = browser.get(f"/jobs/{job}/change")
    fields = dict(
        re.findall(r'name="((?:was\.)?(?:weight|deadline_s))" value="([^"]*)"', form.text)
    )
    assert fields["was.weight"] == fields["weight"] == "2.5"
    assert fields["was.deadline_s"] == fields["deadline_s"] == "2026-09-21T14:13:20.123457+00:00"

    def now() -> tuple[float, float | None]:
        row = daemon.service.store.job(job)
        return row.weight, row.deadline_s

    assert browser.send(f"/jobs/{job}/change", **fields).status_code == 303
    assert now() == (2.5, due_s)
    assert browser.send(f"/jobs/{job}/change", **fields | {"weight": "3"}).status_code == 303
    assert now() == (3.0, due_s)
    assert browser.send(f"/jobs/{job}/change", **fields | {"deadline_s": ""}).status_code == 303
    assert now() == (3.0, None)
    assert browser.send(f"/jobs/{job}/change", weight="4").status_code == 303
    assert now() == (4.0, None)
    for weight in ("-1", "many", "inf"):
        refused = browser.send(f"/jobs/{job}/change", **fields | {"weight": weight})
        assert refused.status_code == 422
        assert "weight" in plain(refused.text)
        assert f'name="weight" value="{weight}"' in refused.text
        assert 'name="was.weight" value="2.5"' in refused.text
    zone = browser.send(f"/jobs/{job}/change", weight="1", deadline_s="2033-01-01T00:00")
    assert (zone.status_code, "without a zone" in zone.text) == (422, True)
    assert now() == (4.0, None)
    assert "/change" in browser.get(f"/jobs/{job}").text
    assert "/change" not in daemon.browser("viewer").get(f"/jobs/{job}").text


def test_a_job_has_its_throughput_with_the_standard_error_and_its_cost(
    daemon: Any, monkeypatch: Any
) -> None:
    def way(steps_per_s: float, source: Source, **workers: int) -> Way:
        found = Estimate(steps_per_s=steps_per_s, relative_deviation=0.02, source=source)
        return Way(workers=workers, estimate=found)

    ways = (
        way(1.0, Source.ASSUMED, p4=1),
        way(4.0, Source.MEASURED, v100=2),
        way(0.0, Source.DECLARED, k80=2),
        way(5.0, Source.ESTIMATED, a100=1, v100=1),
    )
    monkeypatch.setattr(daemon.service, "ways", mock.AsyncMock(return_value=ways))
    job = daemon.caller("admin").submit(job_type="resnet")
    daemon.service.run(job)
    wait(daemon, 2 * HOUR_S)
    real = daemon.service.cluster()
    monkeypatch.setattr(
        daemon.service, "cluster", lambda: dataclasses.replace(real, prices={"v100": 1.5})
    )
    page = daemon.browser("viewer").get(f"/jobs/{job}")
    assert rows(page, "Throughput") == [
        ["1 x a100 + 1 x v100", "5", "0.1", "estimated"],
        ["2 \u00d7 v100", "4", "0.08", "measured"],
        ["1 \u00d7 p4", "1", "", "assumed"],
    ]
    assert fact(page, "cost so far") == "3.00 USD"
    monkeypatch.setattr(daemon.service, "cluster", lambda: real)
    assert fact(daemon.browser("viewer").get(f"/jobs/{job}"), "cost so far") == ""


def test_attempts_are_bars_on_one_time_line(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    wait(daemon, HOUR_S)
    daemon.service.finish(job)
    assert daemon.caller("admin").post(f"/v1/jobs/{job}/requeue").status_code == 200
    wait(daemon, 2 * HOUR_S)
    daemon.service.run(job)
    wait(daemon, HOUR_S)
    page = daemon.browser("viewer").get(f"/jobs/{job}").text
    bars = re.findall(r'<svg x="([\d.]+)%" y="1" width="([\d.]+)%" height="16" class="(\w+)"', page)
    assert bars == [("0.0", "25.0", "ended"), ("75.0", "25.0", "running")]


# -- output ----------------------------------------------------------------------------------------


@pytest.fixture
def book(daemon: Any, tmp_path: Path, monkeypatch: Any) -> LogBook:
    """The real store of output, in place of the fake one."""
    found = LogBook(tmp_path / "output", most_bytes=20_000)
    reader = OutputReader(found, daemon.service.store, WallClock())
    monkeypatch.setattr(daemon.service, "read_log", reader.read)
    return found


def say(book: LogBook, job: str, data: bytes, **more: Any) -> int:
    place = {"attempt": 1, "node": "alpha", "stream": "out", "offset": 0} | more
    return book.append(job, data=data, **place)


def shown(page: Any) -> str:
    found = re.search(r'<pre class="log tall"[^>]*>(.*?)</pre>', page.text, re.DOTALL)
    return unescape(found[1]) if found else ""


def walk(browser: Any, job: str, first: str, rel: str) -> list[str]:
    """Return the parts on the way from one of them."""
    url, parts = f"/jobs/{job}/{first}", list[str]()
    while url:
        page = browser.get(url)
        assert page.status_code == 200
        parts.append(shown(page))
        found = re.search(rf'href="(output\?[^"]+)" rel="{rel}"', page.text)
        url = f"/jobs/{job}/{unescape(found[1])}" if found else ""
        assert len(parts) < 200
    return parts


@pytest.mark.parametrize("long", [5, 90, 400])
def test_the_parts_of_long_output_make_the_whole_on_both_ways_and_break_no_line(
    daemon: Any, book: LogBook, monkeypatch: Any, long: int
) -> None:
    monkeypatch.setattr(output, "PART_BYTES", 100)
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    text = "".join(f"{index} {'x' * (index * 7 % long)}\n" for index in range(60)) + "no end"
    at = 0
    for size in (300, 1, 900, len(text)):
        at = say(book, job, text[at : at + size].encode(), offset=at)
    say(book, job, b"warning\n", stream="err")
    say(book, job, b"beta\n", node="beta")
    browser = daemon.browser("viewer")
    back = walk(browser, job, "output?node=alpha&stream=out", "prev")
    assert "".join(back[::-1]) == text
    forth = walk(browser, job, "output?node=alpha&stream=out&after=0", "next")
    assert "".join(forth) == text
    if long < 90:
        assert all(part.endswith("\n") for part in [*back[1:], *forth[:-1]])
    assert shown(browser.get(f"/jobs/{job}/output?node=alpha&stream=err")) == "warning\n"
    assert shown(browser.get(f"/jobs/{job}/output?node=beta")) == "beta\n"
    other = browser.get(f"/jobs/{job}/output?node=gamma")
    assert "there is no such output" in other.text
    for where in ("before=0", "before=99999999", "after=99999999"):
        assert browser.get(f"/jobs/{job}/output?{where}").status_code == 200
    for where in ("before=-7", f"before={'9' * 4000}", f"attempt={'9' * 400}", "attempt=0"):
        assert "Left out" in browser.get(f"/jobs/{job}/output?{where}").text


def test_output_that_grows_or_is_dropped_while_a_part_is_read_moves_nothing(
    daemon: Any, book: LogBook, monkeypatch: Any
) -> None:
    monkeypatch.setattr(output, "PART_BYTES", 1000)
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    line = b"0123456789abcde\n"
    end, real = say(book, job, line * 200), daemon.service.read_log

    async def grown(job_id: str, wanted: LogWanted) -> StoredLog:
        if wanted.tail_bytes is None:
            monkeypatch.setattr(daemon.service, "read_log", real)
            say(book, job, line * growth, offset=end)
        return await real(job_id, wanted)

    for growth in (100, 4000):  # with 4,000 the older half is dropped
        monkeypatch.setattr(daemon.service, "read_log", grown)
        page = daemon.browser("viewer").get(f"/jobs/{job}/output?before=2000")
        begin, until = (
            int(part.replace("\N{NARROW NO-BREAK SPACE}", ""))
            for part in re.search(r"bytes (.+?) to (.+?) of", unescape(page.text)).groups()
        )
        assert until - begin == len(shown(page).encode())
        assert (growth == 4000) == (begin >= 2000)


def test_a_text_is_found_in_the_lines_of_all_attempts(daemon: Any, book: LogBook) -> None:
    job = daemon.caller("admin").submit()
    for _ in range(2):
        daemon.service.run(job)
        wait(daemon, 60)
        daemon.caller("admin").post(f"/v1/jobs/{job}/requeue")
    say(book, job, b"epoch 1\nLoss: 0.5 <b>\nepo")
    say(book, job, b"ch 2\nloss: 0.4", offset=25)
    say(book, job, b"the \x1b[31mLOSS\x1b[0m grows\n", attempt=2, node="beta", stream="err")
    browser = daemon.browser("viewer")
    page = browser.get(f"/jobs/{job}/output?q=loss")
    found = re.findall(r'<li><a href="([^"]+)">(.*?)</a> <code>(.*?)</code>', page.text)
    assert [(where, unescape(text)) for _, where, text in found] == [
        ("2, beta (err)", "the LOSS grows"),
        ("1, alpha (out)", "Loss: 0.5 <b>"),
        ("1, alpha (out)", "loss: 0.4"),
    ]
    for link, _, text in found:
        assert unescape(text) in shown(browser.get(f"/jobs/{job}/{unescape(link)}"))
    assert "epoch 2" in unescape(browser.get(f"/jobs/{job}/output?q=EPOCH+2").text)
    nothing = plain(browser.get(f"/jobs/{job}/output?q=nothing").text)
    assert "0 lines" in nothing
    assert "not kept" not in nothing
    assert "Not all" not in nothing
    say(book, job, b"x" * 50_000, offset=39)
    assert "not kept any more" in browser.get(f"/jobs/{job}/output?q=nothing").text


def piece(at: int, data: bytes) -> LogChunk:
    return LogChunk(stream="out", node="alpha", attempt=1, offset=at, data=data)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_line_is_found_wherever_its_pieces_are_cut(size: int) -> None:
    data = b"a needle\n" + b"x" * 50 + b"needle" + b"y" * 50 + b"\nno\r10% needle\r20%\r\nNEEDLE"
    lines = Lines("needle", "")
    found = []
    for at in range(0, len(data), size):
        found += lines.feed(piece(at, data[at : at + size]), 1000)
    found += lines.end()
    texts = [one.text.strip("xy") for one in found]
    assert texts == ["a needle", "needle", "10% needle", "NEEDLE"]


def test_a_line_without_an_end_is_searched_in_pieces_of_bounded_size() -> None:
    lines, found, kept = Lines("needle", ""), [], 0
    data = b"z" * 100_000 + b"needle" + b"z" * 100_000
    for at in range(0, len(data), 4096):
        found += lines.feed(piece(at, data[at : at + 4096]), 1000)
        kept = max(kept, len(lines._rest))
    assert len(found + lines.end()) == 1
    assert kept <= 64 * 2**10
    assert len(found[0].text) <= 400


def test_a_hit_in_a_long_line_is_in_the_part_to_which_its_link_leads(
    daemon: Any, book: LogBook
) -> None:
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    book._most_bytes = 10**6
    say(book, job, b"begin needle " + b"z" * 300_000 + b"\n")
    page = daemon.browser("viewer").get(f"/jobs/{job}/output?q=needle")
    (link,) = re.findall(r'<li><a href="([^"]+)">', page.text)
    part = shown(daemon.browser("viewer").get(f"/jobs/{job}/{unescape(link)}"))
    assert part.startswith("begin needle")


def test_a_search_has_bounds_and_says_so(daemon: Any, book: LogBook, monkeypatch: Any) -> None:
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    say(book, job, b"hit\n" * output.MOST_FOUND)
    browser = daemon.browser("viewer")
    page = browser.get(f"/jobs/{job}/output?q=hit")
    assert page.text.count("<li>") == output.MOST_FOUND
    assert "Not all of the output" not in page.text
    say(book, job, b"hit", offset=4 * output.MOST_FOUND)
    page = browser.get(f"/jobs/{job}/output?q=hit")
    assert page.text.count("<li>") == output.MOST_FOUND
    assert "Not all of the output was searched" in page.text
    made = []
    monkeypatch.setattr(output, "readable", lambda data: made.append(data) or "x")
    Lines("e", "").feed(piece(0, b"e\n" * 100_000), 5)
    assert len(made) == 5
    monkeypatch.setattr(output, "SEARCHED_BYTES", 100)
    assert "Not all of the output was searched" in browser.get(f"/jobs/{job}/output?q=z").text


def test_a_token_searches_once_at_a_time(daemon: Any, book: LogBook) -> None:
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    say(book, job, b"hit\n")
    browser, other = daemon.browser("viewer"), daemon.browser("viewer", subject="other")
    searching = daemon.app.state.context.searching
    assert browser.get(f"/jobs/{job}/output?q=hit").status_code == 200
    assert searching == set()
    (token,) = (one for one in daemon.service.store.tokens() if one.subject == "viewer")
    searching.add(token.token_id)
    refused = browser.get(f"/jobs/{job}/output?q=hit")
    assert (refused.status_code, "one search at a time" in refused.text) == (429, True)
    assert other.get(f"/jobs/{job}/output?q=hit").status_code == 200


def test_many_streams_and_attempts_are_named_where_they_are_left_out(
    daemon: Any, book: LogBook, monkeypatch: Any
) -> None:
    monkeypatch.setattr(output, "MOST_OFFERED", 2)
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    for node in ("alpha", "beta", "gamma"):
        say(book, job, node.encode(), node=node)
    browser = daemon.browser("viewer")
    page = browser.get(f"/jobs/{job}/output")
    assert "1 more: name a node" in page.text
    assert 'aria-label="Node"' in page.text
    assert shown(browser.get(f"/jobs/{job}/output?attempt=1&node=gamma")) == "gamma"


def test_output_on_a_standby_is_the_leaders(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    daemon.service.leading = False
    assert "The leader has the output" in daemon.browser("viewer").get(f"/jobs/{job}/output").text
