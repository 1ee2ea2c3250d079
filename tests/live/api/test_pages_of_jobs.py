"""Jobs and their output: groups, times, a change of weight, throughput, cost, and search."""

from __future__ import annotations

import dataclasses
import re
from html import unescape
from typing import Any

import pytest

from api.pages import output
from api.pages.output import Lines
from scheduler.logs.output import LogChunk
from scheduler.views.types import ThroughputView

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


def test_the_same_list_by_command_and_by_curl(daemon: Any) -> None:
    browser = daemon.browser("viewer")
    page = unescape(browser.get("/jobs?status=waiting&status=running&label=a%3Db").text)
    assert "leasehold jobs --status waiting,running --label a=b" in page
    assert "/v1/jobs?status=waiting&status=running&label=a%3Db" in page
    typed = unescape(browser.get("/jobs?job_type=a%2C%20b").text)
    assert "leasehold jobs" not in typed.split('class="copies"')[1]
    assert "/v1/jobs?job_type=a%2C+b" in typed
    events = unescape(browser.get("/events?about=node&by=ann").text)
    assert "/v1/events?subject_kind=node&actor=ann&descending=true" in events


# -- a job -----------------------------------------------------------------------------------------


def test_weight_and_deadline_are_changed_and_a_form_sent_unchanged_changes_nothing(
    daemon: Any,
) -> None:
    job = daemon.caller("admin").submit(weight=2.5, deadline_s=2e9 + 0.25)
    browser = daemon.browser("user")
    form = browser.get(f"/jobs/{job}/change")
    fields = dict(re.findall(r'<input name="(\w+)" value="([^"]*)"', form.text))
    assert fields == {"weight": "2.5", "deadline_s": "2033-05-18T03:33:20.250000+00:00"}
    assert browser.send(f"/jobs/{job}/change", **fields).status_code == 303
    row = daemon.service.store.job(job)
    assert (row.weight, row.deadline_s) == (2.5, 2e9 + 0.25)
    assert browser.send(f"/jobs/{job}/change", weight="3").status_code == 303
    row = daemon.service.store.job(job)
    assert (row.weight, row.deadline_s) == (3.0, 2e9 + 0.25)
    assert browser.send(f"/jobs/{job}/change", weight="4", deadline_s="").status_code == 303
    row = daemon.service.store.job(job)
    assert (row.weight, row.deadline_s) == (4.0, None)
    for weight in ("-1", "many", "inf"):
        refused = browser.send(f"/jobs/{job}/change", weight=weight)
        assert refused.status_code == 422
        assert "weight" in plain(refused.text)
        assert f'value="{weight}"' in refused.text
    zone = browser.send(f"/jobs/{job}/change", weight="1", deadline_s="2033-01-01T00:00")
    assert (zone.status_code, "without a zone" in zone.text) == (422, True)
    assert daemon.service.store.job(job).weight == 4.0
    assert "/change" in browser.get(f"/jobs/{job}").text
    assert "/change" not in daemon.browser("viewer").get(f"/jobs/{job}").text


def test_a_job_has_its_throughput_with_the_standard_error_and_its_cost(
    daemon: Any, monkeypatch: Any
) -> None:
    def figure(job_type: str, **more: Any) -> ThroughputView:
        given: dict[str, Any] = {"scale_factor": 1, "worker_type": "v100", "steps_per_s": 4.0}
        given |= {"source": "measured", "declared": None, "measured": 4.0, "deviation": 0.1}
        return ThroughputView(job_type=job_type, **given | {"samples": 25} | more)

    figures = (
        figure("resnet"),
        figure("resnet", worker_type="k80", source="declared", measured=None, deviation=None),
        figure("resnet", scale_factor=8),
        figure("other"),
    )
    monkeypatch.setattr(daemon.service, "throughputs", lambda: figures)
    job = daemon.caller("admin").submit(job_type="resnet")
    daemon.service.run(job)
    wait(daemon, 2 * HOUR_S)
    real = daemon.service.cluster()
    monkeypatch.setattr(
        daemon.service, "cluster", lambda: dataclasses.replace(real, prices={"v100": 1.5})
    )
    page = daemon.browser("viewer").get(f"/jobs/{job}")
    assert [row[1:5] for row in rows(page, "Throughput")] == [
        ["v100", "4", "0.08", "measured"],
        ["k80", "4", "", "declared"],
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


def say(daemon: Any, job: str, data: bytes, **more: Any) -> None:
    place = {"attempt": 1, "node": "alpha", "stream": "out", "offset": 0} | more
    daemon.service.log.append((job, LogChunk(data=data, **place)))


def shown(page: Any) -> str:
    return unescape(re.search(r'<pre class="log tall"[^>]*>(.*?)</pre>', page.text, re.DOTALL)[1])


def test_windows_of_long_output_make_the_whole_and_break_no_line(
    daemon: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(output, "WINDOW_BYTES", 100)
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    text = "".join(f"line {index}\n" for index in range(100))
    say(daemon, job, text[:300].encode())
    say(daemon, job, text[300:].encode(), offset=300)
    say(daemon, job, b"warning\n", stream="err")
    browser, url, parts = daemon.browser("viewer"), f"/jobs/{job}/output", []
    while url:
        page = browser.get(url)
        parts.append(shown(page))
        found = re.search(r'href="(output\?[^"]+)" rel="prev"', page.text)
        url = f"/jobs/{job}/{unescape(found[1])}" if found else ""
    assert "".join(parts[::-1]) == text
    later = unescape(re.search(r'href="(output\?[^"]+)" rel="next"', page.text)[1])
    assert shown(browser.get(f"/jobs/{job}/{later}")).startswith("line ")
    assert shown(browser.get(f"/jobs/{job}/output?node=alpha&stream=err")) == "warning\n"
    for before in ("0", "-7", "99999999"):
        assert browser.get(f"/jobs/{job}/output?before={before}").status_code == 200


def test_a_text_is_found_in_the_lines_of_all_attempts(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    for _ in range(2):
        daemon.service.run(job)
        wait(daemon, 60)
        daemon.caller("admin").post(f"/v1/jobs/{job}/requeue")
    say(daemon, job, b"epoch 1\nLoss: 0.5 <b>\nepo")
    say(daemon, job, b"ch 2\nloss: 0.4", offset=25)
    say(daemon, job, b"the \x1b[31mLOSS\x1b[0m grows\n", attempt=2, node="beta", stream="err")
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
    assert "0 lines" in plain(browser.get(f"/jobs/{job}/output?q=nothing").text)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_line_is_found_wherever_its_pieces_are_cut(size: int) -> None:
    data = b"a needle\n" + b"x" * 50 + b"needle" + b"y" * 50 + b"\nno\nNEEDLE"
    lines = Lines("needle")
    found = []
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        found += lines.feed(LogChunk(stream="out", node="alpha", attempt=1, offset=at, data=piece))
    found += lines.end()
    assert [one.text.strip("xy") for one in found] == ["a needle", "needle", "NEEDLE"]


def test_a_line_without_an_end_is_searched_in_parts_of_bounded_size() -> None:
    lines, found, kept = Lines("needle"), [], 0
    data = b"z" * 100_000 + b"needle" + b"z" * 100_000
    for at in range(0, len(data), 4096):
        piece = data[at : at + 4096]
        found += lines.feed(LogChunk(stream="out", node="alpha", attempt=1, offset=at, data=piece))
        kept = max(kept, len(lines._rest))
    assert len(found + lines.end()) == 1
    assert kept <= 64 * 2**10
    assert len(found[0].text) <= 400


def test_a_search_has_bounds_and_says_so(daemon: Any, monkeypatch: Any) -> None:
    job = daemon.caller("admin").submit()
    daemon.service.run(job)
    say(daemon, job, b"hit\n" * 300)
    page = daemon.browser("viewer").get(f"/jobs/{job}/output?q=hit")
    assert page.text.count("<li>") == output.MOST_FOUND
    assert "Not all of the output was searched" in page.text
    monkeypatch.setattr(output, "SEARCHED_BYTES", 100)
    page = daemon.browser("viewer").get(f"/jobs/{job}/output?q=other")
    assert "Not all of the output was searched" in page.text


def test_output_on_a_standby_is_the_leaders(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    daemon.service.leading = False
    assert "The leader has the output" in daemon.browser("viewer").get(f"/jobs/{job}/output").text
