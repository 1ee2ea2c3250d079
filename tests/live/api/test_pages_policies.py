"""The view of policies: the one in force, trials, changes, mistakes."""

from __future__ import annotations

import re
import shlex
from html import unescape
from typing import Any

from scheduler.errors import ConflictError


def plain(page: Any) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.text)).split())


def test_the_policy_in_force_and_all_others_are_shown(daemon: Any) -> None:
    page = daemon.browser("viewer").get("/policies")
    assert "In force: max_min_fairness" in plain(page)
    names = re.findall(r'<td><a href="\./policies/(\w+)">', page.text)
    listed = daemon.caller("viewer").get("/v1/policies").json()["policies"]
    assert names == [one["name"] for one in listed]
    one = daemon.browser("viewer").get("/policies/alpha_fairness")
    details = daemon.caller("viewer").get("/v1/policies/alpha_fairness").json()
    assert unescape(one.text).count(details["description"]) == 1
    assert '<form method="post" class' not in one.text
    assert daemon.browser("viewer").get("/policies/nothing").status_code == 404


def test_a_trial_names_the_jobs_and_changes_nothing(daemon: Any) -> None:
    job = daemon.caller("admin").submit(project="vision", scale_factor=2)
    daemon.service.run(job)
    browser = daemon.browser("operator")
    form = {"parameter.alpha": "2", "space_sharing": "on", "do": "try"}
    page = browser.send("/policies/alpha_fairness", **form)
    assert "1 job would hold other workers in the next round; 0 jobs" in plain(page)
    assert f"{job} vision 2 \N{MULTIPLICATION SIGN} v100 waits" in plain(page)
    assert 'name="parameter.alpha" value="2"' in page.text
    assert re.search(r'name="space_sharing" checked', page.text)
    assert daemon.service.policy().name == "max_min_fairness"
    words = shlex.split(unescape(re.search(r'"As a command">([^<]*)<', page.text)[1]))
    assert words[1:4] == ["policy", "set", "alpha_fairness"]
    assert words[4:] == ["--param", "alpha=2", "--space-sharing", "--dry-run"]


def test_a_change_is_in_force_and_in_the_history(daemon: Any) -> None:
    browser = daemon.browser("operator", subject="olga")
    form = {"parameter.alpha": "2", "agnostic": "on", "do": "set"}
    answer = browser.send("/policies/alpha_fairness", **form)
    assert (answer.status_code, answer.headers["location"]) == (303, "../policies")
    found = daemon.service.policy()
    assert (found.name, dict(found.parameters)) == ("alpha_fairness", {"alpha": "2"})
    assert (found.agnostic, found.space_sharing, found.actor) == (True, False, "olga")
    page = browser.get("/policies/alpha_fairness")
    assert 'name="parameter.alpha" value="2"' in page.text
    assert "olga" in browser.get("/events?kind=policy_changed").text


def test_what_cannot_be_used_is_named_and_kept(daemon: Any) -> None:
    browser = daemon.browser("operator")
    for do in ("try", "set"):
        for name, value in (
            ("alpha", "much"),
            ("alpha", "<b>"),
            ("beta", "2"),
            ("alpha", "\u202e"),
        ):
            given = {f"parameter.{name}": value, "do": do}
            page = browser.send("/policies/alpha_fairness", **given)
            assert page.status_code == 422
            assert "Nothing was changed" in page.text
            assert "'<b>'" not in page.text
    assert browser.send("/policies/nothing", do="set").status_code == 404
    assert daemon.service.policy().name == "max_min_fairness"


def test_a_trial_that_takes_too_long_says_so(daemon: Any) -> None:
    daemon.service.failure = ConflictError("the trial of 'fifo' takes more than 10 s")
    page = daemon.browser("operator").send("/policies/fifo", do="try")
    assert (page.status_code, "takes more than 10 s" in page.text) == (409, True)


def test_a_confined_operator_has_no_form(daemon: Any) -> None:
    confined = daemon.browser("operator", projects=("vision",))
    assert "Put in force" not in confined.get("/policies/fifo").text
    assert confined.send("/policies/fifo", do="set").status_code == 403
