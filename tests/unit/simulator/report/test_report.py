"""The HTML report: self-contained, complete, the same every time, and safe with odd names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from simulator.many.cluster_search import ClusterSpace, Goal, ReplayedCluster
from simulator.many.savings import PolicyFigures, SavedAmount, Savings
from simulator.report.advice_page import render_advice_page
from simulator.report.page import render_report, write_report
from simulator.report.savings_page import render_savings_page
from simulator.tables.columns import COLUMNS

VOID = {"meta", "br", "link", "img", "input", "hr"}


class _Page(HTMLParser):
    """Collects elements and complains about tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href"):
                self.links.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def _parsed(page: str) -> _Page:
    parser = _Page()
    parser.feed(page)
    assert parser.open == []
    return parser


def _data(page: str, part: str = "data"):
    return json.loads(re.search(rf'<script id="{part}"[^>]*>(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_is_well_formed_and_asks_the_network_for_nothing(results):
    page = _parsed(render_report(results))
    assert page.links == []
    assert len(page.ids) == len(set(page.ids))


def test_plotly_is_embedded_once(results):
    assert render_report(results).count("plotly.js v") == 1


def test_every_figure_has_its_place(results):
    page = render_report(results)
    ids = _parsed(page).ids
    assert {f"figure-{name}" for name in _data(page)["figures"]} <= set(ids)
    assert {"figure-allocation", "policy", "stack", "runs-held", "runs-at"} <= set(ids)


def test_the_table_shows_the_summaries(results):
    page = _parsed(render_report(results))
    for result in results:
        assert f"{result.summary.average_jct_s / 3600:,.2f}" in page.cells
        assert f"{result.summary.utilisation:.1%}" in page.cells


def test_equal_results_give_equal_bytes(result_of, tmp_path):
    write_report([result_of()], tmp_path / "a.html")
    write_report([result_of()], tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_timings_are_not_in_the_page(result_of):
    result = result_of()
    slower = replace(result, summary=replace(result.summary, cpu_s=77.0, wall_s=78.0))
    assert render_report([result]) == render_report([slower])


def test_names_cannot_break_out_of_the_page(result_of):
    evil = '</script><script>alert("x")</script>{{plotly}}'
    result = result_of(jobs=2, policy=evil)
    jobs = tuple(replace(job, job_id=evil) for job in result.jobs)
    leases = tuple(replace(lease, job_id=evil, job_type=evil) for lease in result.leases)
    page = render_report([replace(result, jobs=jobs, leases=leases)], title=evil)
    _parsed(page)
    assert "<script>alert" not in page
    assert page.count("plotly.js v") == 1
    (run,) = _data(page, "runs-data")["runs"]
    assert set(run["jobs"]["id"]) == {evil}


def test_a_report_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one result"):
        render_report([])


def test_the_best_figure_is_marked_at_the_right_end(results):
    summaries = [r.summary for r in results]
    by_key = {column.key: column for column in COLUMNS}
    fastest = min(range(3), key=lambda i: summaries[i].average_jct_s)
    busiest = max(range(3), key=lambda i: summaries[i].utilisation)
    assert by_key["average_jct_s"].best(summaries) == {fastest}
    assert by_key["utilisation"].best(summaries) == {busiest}
    assert by_key["rounds"].best(summaries) == set()


def test_figures_that_look_the_same_are_all_best(result_of):
    one = result_of().summary
    almost = replace(one, average_jct_s=one.average_jct_s + 1e-6)
    worse = replace(one, average_jct_s=one.average_jct_s * 2)
    column = next(c for c in COLUMNS if c.key == "average_jct_s")
    assert column.best([one, almost, worse]) == {0, 1}
    assert column.best([one, almost]) == set()
    assert column.best([one]) == set()


def test_an_unknown_figure_is_a_dash_and_never_the_best(result_of):
    one = result_of().summary
    unknown = replace(one, rho_max=float("nan"))
    column = next(c for c in COLUMNS if c.key == "rho_max")
    assert column.text(unknown) == "-"
    assert column.best([one, unknown]) == {0}
    assert column.best([unknown, unknown]) == set()


def savings_page(policy="fifo", *, low=1.0, high=3.0):
    figures = {"jobs": 4, "gpu_hours": 1234.5, "usd": 9.0, "mean_jct_s": 1800.0, "p95_jct_s": 7200}
    amount = SavedAmount(value=2.0, low=low, high=high)
    saved = Savings(gpu_hours=amount, usd=amount, mean_jct=amount)
    return render_savings_page(
        [
            PolicyFigures(policy="plain queue", preemptions=0, **figures),
            PolicyFigures(policy=policy, preemptions=7, saved=saved, **figures),
        ],
        subtitle="4 jobs & more",
        assumptions=["a < b"],
        confidence=0.9,
    )


def test_the_savings_page_shows_the_figures_and_their_intervals():
    page = savings_page()
    parsed, data = _parsed(page), _data(page)
    assert parsed.links == []
    assert {f"figure-{name}" for name in data["figures"]} <= set(parsed.ids)
    assert parsed.cells == [
        "1,234", "9.00", "0.500", "2.00", "0",
        "1,234", "2.00 (1.00 to 3.00)", "9.00", "2.00 (1.00 to 3.00)", "0.500",
        "200% (100% to 300%)", "2.00", "7",
    ]  # fmt: skip
    assert "<li>a &lt; b</li>" in page
    assert "The 90% intervals" in page
    (bars,) = data["figures"]["gpu_hours"]["data"]
    assert (bars["x"], bars["y"]) == (["fifo"], [2.0])
    assert (bars["error_y"]["array"], bars["error_y"]["arrayminus"]) == ([1.0], [1.0])


def test_the_savings_page_shows_a_saving_without_an_interval():
    page = savings_page(low=None, high=None)
    assert _parsed(page).cells[6] == "2.00"
    assert _data(page)["figures"]["jct"]["data"][0]["error_y"]["array"] == [0.0]


def test_the_name_of_a_policy_cannot_break_out_of_the_savings_page():
    page = savings_page("</script><script>alert(1)</script>{{plotly}}")
    _parsed(page)
    assert "<script>alert" not in page
    assert page.count("plotly.js v") == 1


def replayed(fast, jct_s, *, unfinished=0):
    return ReplayedCluster(
        counts=(4, fast),
        usd_per_hour=4.0 + 2.0 * fast,
        mean_jct_s=jct_s,
        p95_jct_s=2.0 * jct_s,
        utilisation=0.5,
        unfinished=unfinished,
    )


SPACE = ClusterSpace(types=("t4", "<b>"), prices=(1.0, 2.0), node_workers=4)


def test_the_advice_page_marks_the_best_cluster_and_shows_the_frontier():
    found = [replayed(0, 7200.0), replayed(4, 3600.0), replayed(8, 3600.0)]
    goal = Goal(budget_usd_per_hour=20.0)
    page = render_advice_page(found, SPACE, goal, headline="a < b", subtitle="3 jobs")
    parsed, data = _parsed(page), _data(page)
    assert parsed.links == []
    assert "figure-frontier" in parsed.ids
    assert "<h2>a &lt; b</h2>" in page
    assert parsed.cells == [
        "unchanged", "4.00", "2.00", "4.00", "50%", "0",
        "+4 <b>", "12.00", "1.00", "2.00", "50%", "0",
    ]  # fmt: skip
    assert page.count('class="best"') == 6
    groups = {group["name"]: group["x"] for group in data["figures"]["frontier"]["data"]}
    assert groups == {
        "replayed": [4.0, 12.0, 20.0],
        "frontier": [4.0, 12.0],
        "present cluster": [4.0],
        "advice": [12.0],
    }


def test_the_advice_page_shows_no_jct_of_a_cluster_that_completes_no_job():
    found = [replayed(0, float("inf"), unfinished=3), replayed(4, 60.0)]
    page = render_advice_page(found, SPACE, Goal(), headline="", subtitle="")
    groups = {group["name"]: group["x"] for group in _data(page)["figures"]["frontier"]["data"]}
    assert groups == {"replayed": [12.0], "frontier": [12.0]}
    assert _parsed(page).cells[:6] == ["unchanged", "4.00", "-", "-", "50%", "3"]
    alone = render_advice_page(found[:1], SPACE, Goal(), headline="", subtitle="")
    assert _parsed(alone).cells == ["unchanged", "4.00", "-", "-", "50%", "3"]
