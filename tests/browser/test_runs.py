"""Two runs on one scrubber: in a report without a network, and on the page from files."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from simulator.report.page import write_report
from simulator.report.runs import FORMAT, runs_document
from simulator.request import SimulationRequest
from simulator.run import simulate
from traces.bundle import bundled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.result import SimulationResult

AXE = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
COMPLETE = "measured jobs complete, of those that came"
HOSTILE = '<img src=x onerror="alert(1)">\u202e</script>'


@pytest.fixture(scope="module")
def results() -> list[SimulationResult]:
    """Return a trace under two policies."""
    inputs = {name: str(bundled(name)) for name in ("throughputs", "cluster")}
    policies = ("fifo", "max_min_fairness")
    trace = str(bundled("small"))
    return [
        simulate(SimulationRequest(trace=trace, **inputs, policy=name, record=True))
        for name in policies
    ]


@pytest.fixture(scope="module")
def report(
    chromium: Any, results: list[SimulationResult], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Open the report in a browser without a network, once: its script for plots is large."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(results, path)
    wrong: list[str] = []
    context = chromium.new_context(offline=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: line.type in {"error", "warning"} and wrong.append(line.text))
    page.on("request", lambda sent: sent.url.startswith("file:") or wrong.append(sent.url))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert not wrong


def figures(page: Any) -> dict[str, list[str]]:
    """Return the table of figures: name -> values, left and right."""
    rows = page.locator("#runs tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}


def words(seconds: float) -> str:
    """Return a time of a few hours as the view writes it."""
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def put(page: Any, name: str, document: object) -> None:
    """Choose a file in the view of runs."""
    text = document if isinstance(document, str) else json.dumps(document)
    file = {"name": name, "mimeType": "application/json", "buffer": text.encode()}
    page.locator("#runs-files").set_input_files([file])


def test_at_its_end_the_scrubber_shows_the_figures_of_the_summaries(
    report: Any, results: list[SimulationResult]
) -> None:
    report.locator("#runs-at").press("End")
    found = figures(report)
    summaries = [result.summary for result in results]
    done = [f"{one.jobs_completed} of {one.jobs}" for one in summaries]
    assert found[COMPLETE] == done == ["60 of 60"] * 2
    assert found["JCT so far, of complete jobs"] == [words(one.average_jct_s) for one in summaries]
    ends_s = [run["end_s"] for run in runs_document(results)["runs"]]
    assert ends_s[0] != ends_s[1]
    left = ["0" if end_s == max(ends_s) else "ended" for end_s in ends_s]
    assert found["jobs waiting"] == found["jobs running"] == left
    best = report.locator("#runs td.best").all_inner_texts()
    assert best[0] == words(min(one.average_jct_s for one in summaries))
    assert not {"0", "ended"} & set(best)


def test_keys_move_the_scrubber_by_a_round(report: Any, results: list[SimulationResult]) -> None:
    slider = report.locator("#runs-at")
    slider.press("Home")
    for _ in range(3):
        slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "18 min 0 s"
    came = sum(job.arrival_s <= 1080 for job in results[0].jobs)
    assert figures(report)[COMPLETE] == [f"0 of {came}"] * 2
    slider.press("ArrowLeft")
    expect(report.locator("#runs-words")).to_have_text(re.compile("^12 min 0 s of 1 d 5 h"))


def test_a_run_plays_until_it_is_stopped(report: Any) -> None:
    start = report.locator("#runs-words").inner_text()
    report.get_by_role("button", name="Play").click()
    expect(report.locator("#runs-words")).not_to_have_text(start)
    report.get_by_role("button", name="Pause").click()
    stopped = report.locator("#runs-words").inner_text()
    report.evaluate(
        "new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))"
    )
    assert report.locator("#runs-words").inner_text() == stopped


def test_a_job_is_followed_in_both_runs(report: Any, results: list[SimulationResult]) -> None:
    job = next(one for one in results[0].jobs if one.jct_s and 7200 < one.jct_s < 36000)
    box = report.get_by_label("Job to follow")
    box.fill(job.job_id)
    box.press("Enter")
    said = report.locator("#runs-under")
    expect(said).to_contain_text(f"complete after {words(job.jct_s or 0)}")
    held = report.locator("svg.held")
    for i, run in enumerate(runs_document(results)["runs"]):
        bars = run["bars"]["job"].count(run["jobs"]["id"].index(job.job_id))
        assert held.nth(i).locator("rect.followed").count() == bars > 0
    box.fill("")
    box.press("Enter")
    expect(said).to_contain_text("Point at it")
    report.locator("svg.held").first.locator("rect[data-bar]").first.click(force=True)
    expect(box).to_have_value("vision-00")


def test_one_policy_may_be_shown_alone_or_with_another(report: Any) -> None:
    assert report.locator("svg.held").count() == 2
    report.get_by_label("Right").select_option("none")
    assert report.locator("svg.held").count() == 1
    assert [len(values) for values in figures(report).values()] == [1] * 6
    report.get_by_label("Left").select_option("max_min_fairness")
    assert report.locator("svg.held").get_attribute("aria-label") == (
        "Leases on each worker under max_min_fairness"
    )
    report.reload()


def test_the_view_is_accessible_and_fits_a_telephone(report: Any) -> None:
    report.set_viewport_size({"width": 375, "height": 700})
    report.reload()
    assert report.evaluate("document.documentElement.scrollWidth") <= 375
    if not AXE.exists():
        pytest.skip("there is no npm here")
    report.evaluate(AXE.read_text())
    for scheme in ("light", "dark"):
        report.emulate_media(color_scheme=scheme)
        found = report.evaluate("axe.run('#runs')")["violations"]
        assert [(one["id"], [n["html"] for n in one["nodes"]]) for one in found] == [], scheme


def test_the_page_plays_files_that_a_reader_opens(
    look: Any, results: list[SimulationResult]
) -> None:
    page = look("/policies/-/compare")
    expect(page.locator("#runs")).to_be_hidden()
    put(page, "a.json", runs_document(results[:1]))
    expect(page.locator("svg.held")).to_have_count(1)
    put(page, "b.json", runs_document(results[1:]))
    expect(page.locator("svg.held")).to_have_count(2)
    page.locator("#runs-at").press("End")
    assert figures(page)[COMPLETE] == ["60 of 60"] * 2
    expect(page.locator("#runs-differ")).to_be_hidden()
    page.get_by_label("Right").select_option("none")
    other = runs_document(results[1:])
    (run,) = other["runs"]
    run |= {"trace": "other.csv", "round_length_s": run["round_length_s"] * 2}
    run["moments"]["arrived"] = [0] * len(run["moments"]["time_s"])
    put(page, "c.json", other)
    # The new run is shown, and told from the other one of its policy.
    expect(page.locator("#runs-held figcaption")).to_contain_text(["fifo", "3: max_min_fairness"])
    expect(page.locator("#runs-differ")).to_have_text(
        "The two runs are of different inputs. Trace: small.csv; other.csv. "
        "Round length: 6 min 0 s; 12 min 0 s. Measured jobs: 60; 0."
    )
    many = {"format": FORMAT, "runs": other["runs"] * 48}
    put(page, "many.json", many)
    expect(page.locator("#runs-problem")).to_have_text(
        "many.json: runs has 48 runs, and 47 more may be opened (50 in all): "
        "reload the page to start again"
    )
    many["runs"].pop()
    put(page, "many.json", many)
    expect(page.get_by_label("Right").locator("option")).to_have_count(51)
    expect(page.get_by_label("Right")).to_have_value("3")


def test_a_round_is_a_round_in_a_run_of_very_many(
    look: Any, results: list[SimulationResult]
) -> None:
    document = runs_document(results[:1])
    (run,) = document["runs"]
    run["end_s"] = 9000.5 * run["round_length_s"]
    page = look("/policies/-/compare")
    put(page, "long.json", document)
    slider = page.locator("#runs-at")
    slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "6 min 0 s"
    slider.press("End")
    expect(page.locator("#runs-words")).to_have_text("37 d 12 h of 37 d 12 h")


def test_bars_with_gaps_are_pale_and_names_keep_their_ends(
    look: Any, results: list[SimulationResult]
) -> None:
    document = runs_document(results[:1])
    (run,) = document["runs"]
    run["bars"]["held_s"][0] /= 2
    run["workers"][0] = "a-rack-with-a-long-name-v100/0"
    page = look("/policies/-/compare")
    put(page, "gaps.json", document)
    bars = page.locator("svg.held rect[data-bar]")
    kinds = bars.evaluate_all("found => found.map((bar) => bar.classList.contains('merged'))")
    assert kinds == [True] + [False] * (len(run["bars"]["row"]) - 1)
    expect(page.locator("svg.names text").first).to_have_text("…ong-name-v100/0")


def test_hostile_names_in_a_file_are_text(look: Any, results: list[SimulationResult]) -> None:
    document = runs_document(results)
    for run in document["runs"]:
        run["policy"] = run["trace"] = run["cluster"] = run["note"] = HOSTILE
        run["workers"] = [HOSTILE] * len(run["workers"])
        run["jobs"]["id"] = [HOSTILE * 100] * len(run["jobs"]["id"])
        run["jobs"]["type"] = [HOSTILE] * len(run["jobs"]["id"])
        run["bars"]["reason"] = [HOSTILE] * len(run["bars"]["row"])
    page = look("/policies/-/compare", viewport={"width": 375, "height": 700})
    put(page, "hostile.json", document)
    page.locator("svg.held").first.locator("rect[data-bar]").first.hover(force=True)
    expect(page.locator("#runs-under")).to_contain_text("<img src=x")
    page.locator("svg.held").first.locator("rect[data-bar]").first.click(force=True)
    assert page.locator("#runs img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def broken(document: Any, *path: Any, value: object) -> Any:
    """Return the document with another value in one place."""
    found = copy.deepcopy(document)
    place = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return found


def test_a_file_that_is_none_of_ours_is_refused_by_name_and_field(
    look: Any, results: list[SimulationResult]
) -> None:
    document = runs_document(results[:1])
    run = ("runs", 0)
    page = look("/policies/-/compare")
    problem = page.locator("#runs-problem")
    length = "moments.busy is not a list as long"
    for name, given, said in (
        ("page.html", "<script>alert(1)</script>", "page.html: "),
        ("list.json", [], "the object is missing"),
        ("summary.json", {"policy": "fifo"}, f'its format is not "{FORMAT}"'),
        ("none.json", {"format": FORMAT, "runs": []}, "runs is not a list of at least 1 run"),
        ("a.json", broken(document, *run, "bars", value=None), "bars is missing"),
        (
            "b.json",
            broken(document, *run, "bars", "row", 0, value=99),
            "bars.row[0] is not",
        ),
        (
            "c.json",
            broken(document, *run, "bars", "job", 0, value=0.5),
            "bars.job[0] is not",
        ),
        ("d.json", broken(document, *run, "bars", "end_s", 1, value="1"), "bars.end_s[1]"),
        ("e.json", broken(document, *run, "moments", "busy", value=[1]), length),
        ("f.json", broken(document, *run, "jobs", "id", 0, value={}), "jobs.id[0] is not a text"),
        ("g.json", broken(document, *run, "end_s", value=None), "end_s is not a number"),
    ):
        put(page, name, given)
        expect(problem).to_contain_text(said)
        expect(problem).to_contain_text(name)
        expect(page.locator("#runs")).to_be_hidden()
    put(page, "right.json", document)
    expect(page.locator("svg.held")).to_have_count(1)
    expect(problem).to_be_hidden()
