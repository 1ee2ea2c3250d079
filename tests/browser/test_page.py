"""The page in a browser: views, signing in, actions, following, keys, and hostile text."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from api import pages
from api.auth.browser import COOKIE
from api.pages.static import SHARED
from leasehold_testing.browsing import VIEWS, submit
from scheduler.logs.output import LogChunk
from scheduler.store.queries import JobQuery

FOLDER = Path(__file__).parent
STATIC = Path(pages.__file__).parent / "static"
MODULES = FOLDER / "node_modules"


@pytest.fixture
def job(scheduler: Any) -> str:
    """A running job."""
    found = submit(scheduler, "train")
    scheduler.do(scheduler.service.run, found)
    return found


def cookie_of(page: Any) -> dict[str, Any]:
    (found,) = [one for one in page.context.cookies() if one["name"] == COOKIE]
    return dict(found)


# -- views -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_is_accessible_and_fits_a_telephone(look: Any, job: str, path: str) -> None:
    if not MODULES.exists():
        pytest.skip("there is no npm here")
    page = look(path.format(job=job), viewport={"width": 375, "height": 700})
    page.evaluate((MODULES / "axe-core/axe.min.js").read_text())
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("axe.run()")["violations"]
        assert [(one["id"], [n["html"] for n in one["nodes"]]) for one in found] == [], scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_the_scripts_have_no_faults_of_types() -> None:
    if not MODULES.exists():
        pytest.skip("there is no npm here")
    options = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022"]
    options += ["--module", "esnext", "--lib", "es2022,dom,dom.iterable"]
    folders = (STATIC, SHARED)
    files = [file for folder in folders for file in folder.glob("*.js") if ".min." not in file.name]
    assert {file.name for file in files} == {"page.js", "runs.js"}
    command = [shutil.which("node"), MODULES / "typescript/bin/tsc", *options, *files]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_times_are_in_the_browsers_zone_which_is_named(look: Any, job: str) -> None:
    page = look("/jobs", timezone_id="Asia/Tokyo", locale="en-GB")
    time = page.locator("td time").first
    assert time.inner_text().endswith(" ago")
    assert "GMT+9" in time.get_attribute("title") or "JST" in time.get_attribute("title")
    assert page.locator("#zone").inner_text() == "times in Asia/Tokyo"


def test_a_page_works_without_scripts(look: Any, scheduler: Any, job: str) -> None:
    page = look("/jobs", java_script_enabled=False)
    assert page.locator("td time").first.inner_text().endswith(" UTC")
    page.fill("#find", "train")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name=job).click()
    page.get_by_role("link", name="Hold", exact=True).click()
    page.get_by_role("button", name=f"Hold job {job}").click()
    assert page.locator(".state").first.inner_text().endswith("held")
    assert scheduler.service.store.job(job).status == "held"


# -- signing in ------------------------------------------------------------------------------------


def test_a_token_signs_in_and_leads_to_the_page_that_was_asked_for(
    look: Any, scheduler: Any, job: str
) -> None:
    page = look(f"/jobs/{job}", role="")
    page.fill("#token", "lh_wrong")
    page.keyboard.press("Enter")
    page.get_by_role("alert").filter(has_text="not valid").wait_for()
    secret = scheduler.token("viewer", subject="vera")
    page.fill("#token", secret)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=job).wait_for()
    assert page.url == f"{scheduler.url}/jobs/{job}"
    assert secret not in page.content()
    assert page.evaluate("document.cookie") == ""
    assert cookie_of(page)["sameSite"] == "Strict"
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    page.goto(f"{scheduler.url}/jobs")
    assert "/sign-in" in page.url


def test_a_link_signs_in_by_itself_once(look: Any, scheduler: Any) -> None:
    code = scheduler.app.state.context.codes.make(scheduler.token("user", subject="ann"))
    page = look(f"/sign-in?code={code}", role="")
    page.get_by_role("heading", name="Jobs").wait_for()
    assert "code" not in page.url
    other = look(f"/sign-in?code={code}", role="")
    other.get_by_role("alert").filter(has_text="used already").wait_for()


def test_a_link_in_a_message_opens_the_page_signed_in(look: Any, scheduler: Any, job: str) -> None:
    page = look("/cluster")
    page.goto("about:blank")
    page.set_content(f'<a href="{scheduler.url}/jobs/{job}">look at this</a>')
    page.click("a")
    page.get_by_role("heading", name=job).wait_for()


def test_a_revoked_token_ends_an_open_page_within_ten_seconds(look: Any, scheduler: Any) -> None:
    page = look("/jobs", role="user")
    page.locator("#fresh").filter(has_text="updated").wait_for()
    row = scheduler.service.store.tokens()[-1]
    scheduler.do(scheduler.service.store.revoke_token, row.token_id, now_s=scheduler.service.now_s)
    page.get_by_label("Token").wait_for(timeout=10_000)
    assert "next=jobs" in page.url


# -- following -------------------------------------------------------------------------------------


def test_an_open_page_shows_what_happens_and_keeps_what_a_person_does(
    look: Any, scheduler: Any, job: str
) -> None:
    page = look("/jobs")
    page.keyboard.press("j")
    late = submit(scheduler, "late")
    page.get_by_role("link", name=late).wait_for()
    assert page.evaluate("document.activeElement.textContent") == job
    scheduler.do(scheduler.service.finish, job)
    page.locator("tr", has_text=job).get_by_text("completed").wait_for()


def test_a_cut_connection_is_told_and_heals_over_a_restart(
    look: Any, scheduler: Any, job: str
) -> None:
    page = look(f"/jobs/{job}")
    page.locator("#fresh").filter(has_text="updated").wait_for()
    assert page.locator("#cut").is_hidden()
    scheduler.stop()
    page.locator("#cut").filter(has_text="does not answer").wait_for()
    assert page.locator("body.stale").count() == 1
    assert page.get_by_role("heading", name=job).is_visible()
    scheduler.start()
    page.locator("#cut").wait_for(state="hidden")
    page.locator("#fresh").filter(has_text="updated").wait_for()


def test_a_forecast_comes_by_itself(look: Any, job: str) -> None:
    page = look(f"/jobs/{job}")
    page.locator(".forecast p").filter(has_not_text="When it will").wait_for()


def test_the_slider_moves_the_window_of_rounds_and_now_follows_again(look: Any, job: str) -> None:
    page = look("/rounds")
    page.locator(".row .running", has_text=job).wait_for()
    page.locator(".row .planned", has_text=job).wait_for()
    page.get_by_label("Until").focus()
    page.keyboard.press("Home")
    page.wait_for_url("**until=**")
    page.get_by_text("No job held workers in this window").first.wait_for()
    page.get_by_role("link", name="now", exact=True).click()
    page.locator(".row .running", has_text=job).wait_for()
    page.get_by_label("Rows").select_option("project")
    page.wait_for_url("**by=project**")
    page.locator(".row .running", has_text=job).wait_for()
    assert "until" not in page.url


def test_a_view_of_jobs_is_kept_in_the_browser_whatever_else_is_stored_there(
    look: Any, job: str
) -> None:
    page = look("/jobs?status=waiting&group=owner")
    page.get_by_text("Views", exact=True).click()
    page.get_by_label("Name of this view").fill("my <b>jobs</b>")
    page.get_by_role("button", name="Save").click()
    page.goto(page.url.partition("?")[0])
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("link", name="my <b>jobs</b>").click()
    page.wait_for_url("**/jobs?status=waiting&group=owner")
    for stored in ("{", "7", '[[1,2],["a","javascript:alert(1)"],["good","?q=x"],null]'):
        page.evaluate("text => localStorage.setItem('leasehold-views', text)", stored)
        page.reload()
        page.get_by_text("Views", exact=True).click()
        assert page.locator("#saved li").count() == stored.count("good")
    page.get_by_role("button", name="Drop good").click()
    assert page.locator("#saved li").count() == 0


def test_the_end_of_output_stays_in_view_unless_its_reader_scrolls_up(
    look: Any, scheduler: Any, job: str
) -> None:
    def say(first: int, last: int) -> None:
        begin, data = (
            "".join(f"line {index}\n" for index in some).encode()
            for some in (range(first), range(first, last))
        )
        piece = LogChunk(attempt=1, node="alpha", stream="out", offset=len(begin), data=data)
        scheduler.service.log.append((job, piece))

    say(0, 500)
    page = look(f"/jobs/{job}/output")
    gap = "pre => pre.scrollHeight - pre.clientHeight - pre.scrollTop"
    pre = page.locator("pre.tall")
    assert pre.evaluate(gap) < 8
    say(500, 600)
    expect(pre).to_contain_text("line 599", timeout=15_000)
    page.wait_for_function("document.querySelector('pre.tall').scrollTop > 0")
    assert pre.evaluate(gap) < 8
    pre.evaluate("pre => pre.scrollTo(0, 40)")
    say(600, 700)
    expect(pre).to_contain_text("line 699", timeout=15_000)
    assert pre.evaluate("pre => pre.scrollTop") == 40


def test_use_is_chosen_by_month_and_keys_and_kept_as_a_file(look: Any, job: str) -> None:
    page = look("/usage")
    page.get_by_label("owner").check()
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**by=owner**")
    with page.expect_download() as loading:
        page.get_by_role("link", name="Download as CSV").click()
    assert re.fullmatch(r"leasehold-usage-\d{4}-\d\d\.csv", loading.value.suggested_filename)


def test_a_word_leads_to_its_explanation(look: Any, job: str) -> None:
    page = look("/fairness")
    page.locator(f"#job-{job}").wait_for()
    page.get_by_role("link", name="rho").last.click()
    page.get_by_text("Finish-time fairness").wait_for()
    assert page.url.endswith("/words#rho")


# -- actions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "verb", "after"),
    [
        ("waiting", "Hold", "held"),
        ("held", "Release", "waiting"),
        ("running", "Requeue", "waiting"),
        ("waiting", "Cancel", "cancelled"),
    ],
)
def test_an_action_is_two_clicks_and_a_reason(
    look: Any, scheduler: Any, before: str, verb: str, after: str
) -> None:
    found = submit(scheduler, "train", held=before == "held")
    if before == "running":
        scheduler.do(scheduler.service.run, found)
    page = look(f"/jobs/{found}", role="user")
    page.get_by_role("link", name=verb, exact=True).click()
    page.get_by_label("Reason").fill("it has to be")
    page.get_by_role("button", name=f"{verb} job {found}").click()
    page.locator(".head .state").filter(has_text=after).wait_for()
    assert scheduler.service.store.job(found).status == after
    assert scheduler.service.reason == "it has to be"


def test_jobs_that_match_a_filter_are_cancelled_together(look: Any, scheduler: Any) -> None:
    mine = [submit(scheduler, f"sweep-{i}", project="vision") for i in range(3)]
    other = submit(scheduler, "other")
    page = look("/jobs", role="user")
    page.get_by_role("textbox", name="project").fill("vision")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name="cancel", exact=True).click()
    page.get_by_role("heading", name="Cancel 3 of 3 jobs?").wait_for()
    page.get_by_label("Reason").fill("wrong data")
    page.get_by_role("button", name="Cancel 3 jobs").click()
    page.get_by_role("heading", name="3 of 3 jobs changed").wait_for()
    statuses = {scheduler.service.store.job(one).status for one in mine}
    assert statuses == {"cancelled"}
    assert scheduler.service.store.job(other).status == "waiting"


def test_a_job_is_tried_and_then_submitted(look: Any, scheduler: Any) -> None:
    page = look("/submit", role="user")
    page.get_by_label("Name", exact=True).fill("train")
    page.get_by_label("Command", exact=True).fill("python train.py")
    page.keyboard.press("Enter")
    page.get_by_text("It could start now").wait_for()
    assert scheduler.service.store.jobs(JobQuery()).rows == ()
    assert "- train.py" in page.get_by_label("One job, or a list of jobs").input_value()
    page.get_by_role("button", name="Submit", exact=True).first.click()
    page.locator(".head .state").filter(has_text="waiting").wait_for()
    page.get_by_role("link", name="Clone").click()
    page.get_by_role("button", name="Submit", exact=True).last.click()
    page.locator(".head .state").filter(has_text="waiting").wait_for()
    assert len(scheduler.service.store.jobs(JobQuery()).rows) == 2


def test_a_mistake_shows_beside_the_form_and_keeps_what_was_typed(look: Any) -> None:
    page = look("/submit", role="user")
    text = page.get_by_label("One job, or a list of jobs")
    text.fill("name: train\ncolour: red\n")
    page.get_by_role("button", name="Submit", exact=True).last.click()
    page.get_by_text("colour", exact=True).wait_for()
    assert text.input_value() == "name: train\ncolour: red\n"


def test_a_policy_is_tried_and_put_in_force(look: Any, scheduler: Any, job: str) -> None:
    page = look("/policies", role="operator")
    page.get_by_role("link", name="alpha_fairness").click()
    page.locator('input[name="parameter.alpha"]').fill("2")
    page.get_by_role("button", name="Try").click()
    page.get_by_text("1 job would hold other workers").wait_for()
    assert scheduler.service.policy().name == "max_min_fairness"
    page.get_by_role("button", name="Put in force").click()
    page.get_by_role("heading", name="In force: alpha_fairness").wait_for()
    assert scheduler.service.policy().parameters == {"alpha": "2"}


def test_a_token_is_made_and_revoked(look: Any, scheduler: Any) -> None:
    page = look("/admin/tokens")
    page.get_by_role("link", name="New token").click()
    page.get_by_label("subject").fill("ann")
    page.get_by_label("role").select_option("user")
    page.get_by_role("button", name="Make").click()
    secret = page.get_by_label("Secret").inner_text()
    headers = {"Authorization": f"Bearer {secret}"}
    assert httpx.get(f"{scheduler.url}/v1/whoami", headers=headers).json()["subject"] == "ann"
    page.get_by_role("link", name="back to the list").click()
    page.locator("tr", has_text="ann").get_by_role("link", name="revoke").click()
    page.get_by_role("button", name="Revoke token").click()
    page.locator("tr", has_text="ann").get_by_text("revoked").wait_for()


def test_a_node_is_drained_and_returned(look: Any, scheduler: Any) -> None:
    page = look("/cluster", role="operator")
    for verb, state in (("drain", "draining"), ("uncordon", "ready"), ("cordon", "cordoned")):
        page.get_by_role("link", name=verb, exact=True).click()
        page.get_by_role("button", name=f"{verb.capitalize()} node alpha").click()
        page.locator("#node-alpha .state").filter(has_text=state).wait_for()
        assert scheduler.service.nodes()[0].state == state


def test_a_viewer_sees_no_actions(look: Any, job: str) -> None:
    page = look(f"/jobs/{job}", role="viewer")
    assert page.locator(".actions a").count() == 0
    page.get_by_role("link", name="Cluster").click()
    assert page.get_by_role("link", name="drain").count() == 0


# -- keys, and text --------------------------------------------------------------------------------


def test_the_page_is_used_by_keys_alone(look: Any, scheduler: Any, job: str) -> None:
    page = look("/jobs")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("train")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=train**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=job).wait_for()
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.get_by_role("heading", name="Cluster").wait_for()
    assert page.url == f"{scheduler.url}/cluster"


def test_hostile_text_is_text(look: Any, scheduler: Any) -> None:
    text = "</script><img src=x onerror=alert(1)>\u202e{{7*7}}"
    spec = {"labels": {"note": text}, "command": [text], "job_type": text}
    found = submit(scheduler, "evil", **spec)
    lease = scheduler.do(scheduler.service.run, found)
    output = b"x" * 10_000_000 + b"\x1b]0;title\x07\x1b[2J<img src=x onerror=alert(2)>\xff"
    append = scheduler.service.append_log("alpha", lease.lease_id, "out", offset=0, data=output)
    asyncio.run_coroutine_threadsafe(append, scheduler._loop).result(30)
    page = look(f"/jobs/{found}")
    page.locator(".forecast p").filter(has_not_text="When it will").wait_for()
    assert page.get_by_text("{{7*7}}").count() > 0
    assert (
        page.locator("pre.log").first.inner_text().endswith("x<img src=x onerror=alert(2)>\ufffd")
    )
    assert page.locator("main img").count() == 0
    assert len(page.content()) < 150_000


# -- behind a proxy --------------------------------------------------------------------------------


def test_the_page_works_behind_a_path_prefix(look: Any, scheduler: Any, job: str) -> None:
    scheduler.prefix = "/gpu/leasehold"
    page = look("/gpu/leasehold/jobs", role="")
    page.fill("#token", scheduler.token("operator"))
    page.keyboard.press("Enter")
    page.get_by_role("link", name=job).click()
    page.get_by_role("link", name="Hold", exact=True).click()
    page.get_by_role("button", name=f"Hold job {job}").click()
    page.locator(".head .state").filter(has_text="held").wait_for()
    page.locator("#fresh").filter(has_text="updated").wait_for()
    page.get_by_role("link", name="Cluster").click()
    page.get_by_role("link", name="drain", exact=True).click()
    page.get_by_role("button", name="Drain node alpha").click()
    page.locator("#node-alpha .state").filter(has_text="draining").wait_for()
    assert page.url == f"{scheduler.url}/gpu/leasehold/cluster"
    assert cookie_of(page)["path"] == "/gpu/leasehold"
