"""The views of use, rounds and fairness: their figures, and who sees which."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import re
from html import unescape
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from api.pages import fairness, rounds, usage
from api.pages.rounds import Holding, Window, read_window, rows_of
from scheduler.control.facts.requests import ProjectLimits
from scheduler.views.dues import Dues
from scheduler.views.types import AllocationView, BudgetView, ProjectView

NOW_S = 1_000_000.0


def cells(page: Any, label: str) -> list[list[str]]:
    """Return the texts of a table's cells."""
    table = re.search(rf'aria-label="{label}">(.*?)</table>', page.text, re.DOTALL)
    assert table, label
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table[1], re.DOTALL)[1:]
    plain = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]
    return [
        [unescape(re.sub(r"<[^>]+>", "", cell)).strip().replace("\u00d7", "x") for cell in row]
        for row in plain
    ]


def worked(daemon: Any, *, project: str, hours: float, owner: str = "ann") -> str:
    """Return a job that held one worker for so long, until now."""
    job = str(daemon.caller("user", subject=owner).submit(project=project))
    daemon.service.run(job)
    daemon.service.now_s += hours * 3600
    daemon.clock.seconds = daemon.service.now_s
    daemon.service.finish(job)
    return job


# -- use -------------------------------------------------------------------------------------------


def test_use_is_added_up_by_what_the_url_says_and_its_parts_make_the_whole(daemon: Any) -> None:
    worked(daemon, project="vision", hours=3)
    worked(daemon, project="speech", hours=1, owner="bob")
    browser = daemon.browser("viewer")
    page = browser.get("/usage-figures")
    assert cells(page, "Usage") == [
        ["vision", "v100", "1", "3", "75\u202f%", ""],
        ["speech", "v100", "1", "1", "25\u202f%", ""],
    ]
    assert "4 <a" in page.text
    assert "./usage-figures?month=1970-01" in browser.get("/usage").text
    by_owner = cells(browser.get("/usage-figures?by=owner&by=day"), "Usage")
    assert [(row[0], row[3]) for row in by_owner] == [("ann", "3"), ("bob", "1")]
    assert cells(browser.get("/usage-figures?project=speech&by=owner"), "Usage")[0][0] == "bob"
    assert "Nothing was used" in browser.get("/usage-figures?project=other").text


def test_a_month_ends_at_its_end_and_one_to_come_is_named(daemon: Any) -> None:
    worked(daemon, project="vision", hours=24 * 30)
    browser = daemon.browser("viewer")
    first, second = (browser.get(f"/usage-figures?month=1970-0{n}&by=project") for n in (1, 2))
    hours = [float(cells(page, "Usage")[0][2]) for page in (first, second)]
    assert sum(hours) == pytest.approx(24 * 30)
    assert hours[0] == pytest.approx((31 * 86400 - NOW_S) / 3600, rel=0.01)
    assert "give one from 1970 to this month" in browser.get("/usage?month=1970-03").text
    assert "give one from 1970 to this month" in browser.get("/usage?month=0000-03").text
    assert "<option selected>1970-02</option>" in browser.get("/usage").text


def test_the_file_has_every_row_and_nothing_that_a_spreadsheet_computes(daemon: Any) -> None:
    job = daemon.caller("user", subject="=1+1@x").submit(job_type="-2+3")
    daemon.service.run(job)
    daemon.service.now_s += 1800.0
    daemon.clock.seconds = daemon.service.now_s
    answer = daemon.browser("viewer").get("/usage/usage.csv?by=owner&by=job_type")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert 'filename="leasehold-usage-1970-01.csv"' in answer.headers["content-disposition"]
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == ["owner", "job_type", "leases", "worker_s", "gpu_used_s", "gpu_measured_s"]
    assert rows[1] == ["'=1+1@x", "'-2+3", "1", "1800.000000", "", "0.000000"]


def test_figures_are_kept_for_a_while_by_what_their_reader_may_see(
    daemon: Any, monkeypatch: Any
) -> None:
    asked = []
    whole = daemon.service.store.usage
    daemon.service.store.usage = lambda query: asked.append(query) or whole(query)
    worked(daemon, project="vision", hours=1)
    for role, projects in (("viewer", ()), ("admin", ()), ("viewer", ("vision",))):
        for _ in range(2):
            daemon.browser(role, projects=projects).get("/usage-figures")
    assert [query.projects for query in asked] == [None, frozenset({"vision"})]
    monkeypatch.setattr(usage, "KEPT_S", -1.0)
    daemon.app.state.context.kept_answers.clear()
    for _ in range(2):
        daemon.browser("viewer").get("/usage-figures")
    assert len(asked) == 4


def test_a_failure_to_add_up_is_not_kept(daemon: Any) -> None:
    whole = daemon.service.store.usage
    daemon.service.store.usage = lambda query: 1 / 0
    assert daemon.browser("viewer").get("/usage-figures").status_code == 500
    daemon.service.store.usage = whole
    assert daemon.browser("viewer").get("/usage-figures").status_code == 200


def test_budgets_and_idle_gpus_are_beside_the_use(daemon: Any, monkeypatch: Any) -> None:
    limits = ProjectLimits(project="vision", budget_gpu_hours=100.0)
    budget = BudgetView(
        used_gpu_hours=90.0, used_usd=0.0, part=0.9, state="warned", month_end_s=NOW_S + 9e5
    )
    view = ProjectView(
        limits=limits, active_jobs=1, admitted_workers=1, running_workers=1, budget=budget
    )
    monkeypatch.setattr(daemon.service, "projects", lambda: (view,))
    page = daemon.browser("viewer").get("/usage")
    assert cells(page, "Budgets")[0][:4] == ["vision", "!warned", "90 of 100", "0"]
    assert "leave its GPUs idle" in page.text
    confined = daemon.browser("viewer", projects=("speech",)).get("/usage")
    assert "No project has a budget" in confined.text


def test_a_confined_reader_gets_the_use_of_its_projects(daemon: Any) -> None:
    worked(daemon, project="vision", hours=1)
    foreign = worked(daemon, project="speech", hours=2)
    browser = daemon.browser("viewer", projects=("vision",))
    for path in (
        "/usage?by=job",
        "/usage-figures?by=job",
        "/usage/usage.csv?by=job",
        "/rounds",
        "/rounds?by=project",
    ):
        page = browser.get(path).text
        assert foreign not in page
        assert "speech" not in page
    assert [row[0] for row in cells(browser.get("/usage-figures"), "Usage")] == ["vision"]


def test_the_command_and_the_call_ask_for_the_same(daemon: Any) -> None:
    page = daemon.browser("viewer").get("/usage?by=owner&project=vision").text
    copied = unescape(re.search(r'"As a command">([^<]*)<', page)[1])
    assert copied.startswith("leasehold usage --by owner --since 1970-01-01T00:00:00Z --until ")
    assert copied.endswith(" --project vision")
    assert "/v1/usage?by=owner&since_s=0&until_s=1000000&project=vision" in unescape(page)


# -- rounds ----------------------------------------------------------------------------------------


def test_the_time_line_has_past_present_and_planned_leases(daemon: Any) -> None:
    done = worked(daemon, project="vision", hours=1)
    held = daemon.caller("admin").submit(project="speech", scale_factor=2)
    daemon.service.run(held)
    browser = daemon.browser("viewer")
    page = browser.get("/rounds")
    bars = re.findall(r'class="(ended|running|planned)"><title>([\w-]+):', page.text)
    assert bars == [("ended", done), ("running", held), ("planned", held)]
    (ends,) = re.findall(r'<defs><g id="round-ends">(.*?)</g></defs>', page.text)
    assert len(re.findall(r'<line x1="[\d.]+%"', ends)) == 10
    assert page.text.count('href="#round-ends"') == page.text.count('class="row"') == 1
    assert [row[:3] for row in cells(page, "Leases")] == [
        [held, "1", "2 x v100"],
        [done, "1", "1 x v100"],
    ]
    assert cells(page, "Next round")[0][:3] == [held, "2 x v100", "alpha"]
    for group, names in (
        ("node", ["alpha"]),
        ("type", ["v100"]),
        ("project", ["speech", "vision"]),
    ):
        found = browser.get(f"/rounds?by={group}").text
        assert re.findall(r'class="row-name">(\w+)<', found) == names


def test_a_window_of_the_past_stays_where_it_is(daemon: Any) -> None:
    done = worked(daemon, project="vision", hours=2)
    worked(daemon, project="vision", hours=30)
    until = int(NOW_S + 3600)
    page = daemon.browser("viewer").get(f"/rounds?span=1h&until={until}")
    assert [row[0] for row in cells(page, "Leases")] == [done]
    assert "Next round" not in page.text
    assert f"until={until - 1800}" in page.text
    assert f"until={until + 1800}" in page.text


def test_a_long_window_shows_the_newest_leases_and_says_so(daemon: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(rounds, "MOST_LEASES", 2)
    jobs = [worked(daemon, project="vision", hours=0.1) for _ in range(3)]
    page = daemon.browser("viewer").get("/rounds")
    assert "Not all leases of the window are shown" in page.text
    assert [row[0] for row in cells(page, "Leases")] == jobs[:0:-1]


def test_nodes_are_found_by_name_and_shown_page_by_page(daemon: Any, monkeypatch: Any) -> None:
    (node,) = daemon.service.nodes()
    nodes = tuple(dataclasses.replace(node, name=name) for name in ("alpha", "beta", "gamma"))
    monkeypatch.setattr(daemon.service, "nodes", lambda: nodes)
    monkeypatch.setattr(rounds, "NODES", 2)
    done = worked(daemon, project="vision", hours=1)
    browser = daemon.browser("viewer")

    def names(page: Any) -> list[str]:
        return re.findall(r'class="row-name">(\w+)<', page.text)

    first = browser.get("/rounds")
    assert (names(first), done in first.text) == (["alpha", "beta"], True)
    following = re.search(r'href="(\?[^"]+)" rel="next"', first.text)[1]
    second = browser.get(f"/rounds{unescape(following)}")
    assert (names(second), done in second.text) == (["gamma"], False)
    assert names(browser.get("/rounds?q=am")) == ["gamma"]
    assert "No row has such a name" in browser.get("/rounds?q=nothing").text
    past = browser.get(f"/rounds?until={int(NOW_S) + 1800}")
    assert (names(past), done in past.text) == (["alpha"], True)


def test_a_full_time_line_is_within_bounds(daemon: Any) -> None:
    for _ in range(320):
        worked(daemon, project="vision", hours=0.01)
    browser = daemon.browser("viewer")
    for path in ("/rounds", "/usage-figures?by=job", "/fairness"):
        page = browser.get(path, headers={"Accept-Encoding": "identity"})
        assert len(page.content) < 150_000
        part = browser.get(path, headers={"HX-Request": "true"})
        assert len(gzip.compress(part.content, 4)) < 30_000


def test_gangs_on_many_nodes_make_a_bounded_number_of_bars() -> None:
    window = Window(group="node", span="1h", now_s=7200.0, until_s=7200.0, notes=())
    nodes = tuple(f"n{i:02}" for i in range(25))
    gang = Holding(
        job_id="a", workers=25, worker_type="v100", nodes=nodes,
        begin_s=4000.0, end_s=5000.0, kind="ended",
    )  # fmt: skip
    rows, is_cut = rows_of([gang] * 100, window, nodes)
    assert (sum(len(row.bars) for row in rows), is_cut) == (rounds.MOST_BARS, True)


def test_jobs_that_overlap_have_lanes_of_their_own_and_gangs_a_bar_on_each_node() -> None:
    window = Window(group="node", span="1h", now_s=7200.0, until_s=7200.0, notes=())

    def span(job: str, begin_s: float, end_s: float, *nodes: str) -> Holding:
        return Holding(
            job_id=job, workers=1, worker_type="", nodes=nodes,
            begin_s=begin_s, end_s=end_s, kind="ended",
        )  # fmt: skip

    spans = [
        span("a", 3600.0, 5400.0, "n1", "n2"),
        span("b", 4500.0, 7200.0, "n1"),
        span("c", 5400.0, 9000.0, "n1"),
    ]
    (first, second, third), is_cut = rows_of(spans, window, ["n1", "n2", "n3"])
    assert [(bar.holding.job_id, bar.lane, bar.x, bar.width) for bar in first.bars] == [
        ("a", 0, 0.0, 50.0),
        ("b", 1, 25.0, 75.0),
        ("c", 0, 50.0, 50.0),
    ]
    assert (first.lanes, second.lanes, third.lanes, third.bars) == (2, 1, 1, ())
    assert [bar.holding.job_id for bar in second.bars] == ["a"]
    assert not is_cut


@pytest.mark.parametrize(
    ("query", "until_s", "notes"),
    [
        ("", None, 0),
        ("until=5000", 5000.0, 0),
        ("until=7300", None, 0),
        ("until=5000&at=5000", None, 0),
        ("until=5000&at=7200", 5000.0, 0),
        ("until=0", 1.0, 0),
        ("until=-5", None, 1),
        ("until=1e3", None, 1),
        ("until=²", None, 1),
        ("until=" + "9" * 400, None, 1),
        ("span=2h&by=colour", None, 2),
    ],
)
def test_the_window_is_read_without_failing(query: str, until_s: float | None, notes: int) -> None:
    window = read_window(QueryParams(query), 7200.0)
    assert (window.until_s, len(window.notes)) == (until_s, notes)
    assert window.begin_s < window.end_s
    assert window.first_s <= window.end_s


# -- fairness --------------------------------------------------------------------------------------


def test_jobs_that_are_furthest_behind_come_first(daemon: Any, monkeypatch: Any) -> None:
    admin = daemon.caller("admin")
    jobs = [admin.submit(name=f"j{i}") for i in range(3)]
    shares = {jobs[0]: {"v100": 0.5}, jobs[1]: {"v100": 0.4, "a100": 0.2}}
    received = {jobs[0]: {"v100": 0.5}, jobs[1]: {"v100": 0.1}, jobs[2]: {"v100": 0.3}}
    found = AllocationView(
        policy="max_sum", computed_s=NOW_S, solve_s=0.25, shares=shares, received=received
    )
    monkeypatch.setattr(daemon.service, "allocation", lambda: found)
    page = daemon.browser("viewer").get("/fairness")
    rows = cells(page, "Jobs")
    assert [(row[0], row[2]) for row in rows] == [
        (jobs[1], "50\u202f%"),
        (jobs[0], "0\u202f%"),
        (jobs[2], "-30\u202f%"),
    ]
    assert rows[0][3:5] == ["0\u202f% of 20\u202f%", "10\u202f% of 40\u202f%"]
    monkeypatch.setattr(fairness, "ROWS", 2)
    second = daemon.browser("viewer").get("/fairness?page=2")
    assert [row[0] for row in cells(second, "Jobs")] == [jobs[2]]
    assert cells(daemon.browser("viewer").get("/fairness?page=9"), "Jobs") == cells(second, "Jobs")


def test_a_project_has_what_it_is_due_and_a_confined_reader_sees_its_own(
    daemon: Any, monkeypatch: Any
) -> None:
    def view(project: str, owed_worker_s: float | None) -> ProjectView:
        dues = Dues(
            due_workers=2.5,
            received_workers=2.0,
            owed_worker_s=owed_worker_s,
            mean_rho=1.2,
            worst_rho=3.0,
        )
        return ProjectView(
            limits=ProjectLimits(project=project),
            active_jobs=4,
            admitted_workers=4,
            running_workers=2,
            dues=dues,
        )

    views = (view("speech", None), view("vision", 7200.0))
    monkeypatch.setattr(daemon.service, "projects", lambda: views)
    rows = cells(daemon.browser("viewer").get("/fairness"), "Projects")
    assert rows[0] == ["vision", "1", "4", "2.5", "2", "2h00m", "1.2", "3"]
    assert rows[1][5] == ""
    own = daemon.caller("admin").submit(project="speech")
    foreign = daemon.caller("admin").submit(project="vision")
    for job in (own, foreign):
        daemon.service.run(job)
    confined = daemon.browser("viewer", projects=("speech",)).get("/fairness")
    assert [row[0] for row in cells(confined, "Projects")] == ["speech"]
    assert [row[0] for row in cells(confined, "Jobs")] == [own]


def test_figures_lead_to_their_explanation(daemon: Any) -> None:
    browser = daemon.browser("viewer")
    known = set(re.findall(r'<dt id="([\w-]+)"', browser.get("/words").text))
    daemon.service.run(daemon.caller("admin").submit())
    for path in ("/fairness", "/usage", "/rounds"):
        assert set(re.findall(r'words#([\w-]+)"', browser.get(path).text)) <= known


def test_pages_are_compressed_for_browsers_unless_they_hold_a_key(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    browser = daemon.browser("admin")
    assert browser.get("/words").headers["content-encoding"] == "gzip"
    plain = browser.get("/words", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == browser.get("/words").text
    form = browser.get(f"/jobs/{job}/hold")
    assert "form_key" in form.text
    assert "content-encoding" not in form.headers
