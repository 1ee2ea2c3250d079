"""The view for submitting: forms, trials, mistakes, repeated requests, copies of jobs."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from html import unescape
from typing import Any

import pytest
import yaml

from api.pages import routing
from api.pages.copying import write_yaml
from api.pages.submit import MOST_TEXT, read_fields, read_text
from scheduler.errors import InputError, NotLeadingError, StartingError

JOB = "name: train\ncommand: [python, train.py]\n"


def text_of(page: Any) -> str:
    return unescape(re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page.text, re.DOTALL)[1])


def plain(page: Any) -> str:
    """Return the result on a page without its tags."""
    found = re.search(r'<section class="card result".*?</section>', page.text, re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", found[0])).split()) if found else ""


def jobs_of(daemon: Any) -> list[dict[str, Any]]:
    return list(daemon.caller("admin").get("/v1/jobs").json()["jobs"])


def test_a_command_is_submitted_and_leads_to_its_job(daemon: Any) -> None:
    browser = daemon.browser("user", subject="ann")
    fields = {"name": "train", "command": "python train.py --note 'a b'", "workers": "2"}
    fields |= {"project": "vision", "duration": "30m", "do": "submit"}
    answer = browser.send("/submit", **fields)
    assert answer.status_code == 303
    (job,) = jobs_of(daemon)
    assert answer.headers["location"] == f"./jobs/{job['job_id']}"
    spec = daemon.caller("admin").get(f"/v1/jobs/{job['job_id']}").json()["spec"]
    assert spec["command"] == ["python", "train.py", "--note", "a b"]
    assert (job["scale_factor"], spec["duration_s"], job["owner"]) == (2, 1800.0, "ann")


def test_a_trial_says_where_it_could_run_and_changes_nothing(daemon: Any) -> None:
    browser = daemon.browser("user")
    page = browser.send("/submit", name="train", command="python train.py", do="check")
    assert "1 of 1 could run It could start now. It would start 1970-01-12" in plain(page)
    assert "By a replay." in plain(page)
    two = browser.send("/submit", text="- {name: a, command: [a]}\n- {name: b, command: [b]}\n")
    assert "It would start" not in plain(two)
    assert "v100" in plain(page)
    assert yaml.safe_load(text_of(page)) == {"name": "train", "command": ["python", "train.py"]}
    assert 'value="python train.py"' in page.text
    assert jobs_of(daemon) == []
    large = browser.send("/submit", text=JOB + "scale_factor: 64\n", do="check")
    assert "0 of 1 could run" in plain(large)
    assert text_of(large) == JOB + "scale_factor: 64\n"


ODD = "{batch: 8, config: {model_type: gpt2, odd: %s}}"


@pytest.mark.parametrize("odd", [f"1{'0' * 400}", '"\\ud800"', "[" * 60 + "]" * 60, '"\\0"'])
@pytest.mark.parametrize("form", [ODD, f"'{ODD}'"])
def test_a_model_that_cannot_be_stored_is_refused_by_the_form(
    daemon: Any, odd: str, form: str
) -> None:
    text = f"{JOB}total_steps: 5\nmodel: {form % odd}\n"
    for do in ("check", "submit"):
        page = daemon.browser("user").send("/submit", text=text, do=do)
        assert page.status_code in {200, 422}
        assert re.search("model|invalid Unicode", plain(page))
        assert text_of(page) == text
    assert jobs_of(daemon) == []


def test_a_number_of_400_digits_is_refused_by_name(daemon: Any) -> None:
    many = f"1{'0' * 400}"
    browser = daemon.browser("user")
    for do in ("check", "submit"):
        page = browser.send("/submit", text=f"{JOB}weight: {many}\n", do=do)
        assert "weight is a number of more than 64 bits" in plain(page)
        page = browser.send("/submit", name="a", command="a", workers=many, do=do)
        assert "scale_factor is a number of more than 64 bits" in plain(page)


def test_enter_in_a_form_tries_and_does_not_submit(daemon: Any) -> None:
    page = daemon.browser("user").get("/submit").text
    for form in re.findall(r"<form method=\"post\" class=\"card.*?</form>", page, re.DOTALL):
        assert re.findall(r'<button name="do" value="(\w+)"', form) == ["check", "submit"]


def test_the_same_form_sent_again_makes_no_second_job(daemon: Any) -> None:
    browser = daemon.browser("user")
    key = re.search(r'name="key" value="(\w+)"', browser.get("/submit").text)[1]
    first, second = (browser.send("/submit", text=JOB, key=key, do="submit") for _ in range(2))
    assert first.headers["location"] == second.headers["location"]
    assert len(jobs_of(daemon)) == 1
    again = {"name": "b", "command": ["b"]}
    twice = json.dumps({"jobs": [again, again, GIVEN]})
    for _ in range(2):
        page = browser.send("/submit", text=twice, key=key, do="submit")
        assert "3 of 3 submitted" in plain(page)
        assert "had been submitted before" in plain(page)
    assert sorted(job["name"] for job in jobs_of(daemon)) == ["b", "b", "train"]


def test_a_deadline_as_a_span_counts_from_the_receipt_and_makes_no_second_job(daemon: Any) -> None:
    assert read_text(JOB + "deadline: 2h\n")[0]["deadline_in_s"] == 7200.0
    assert "deadline_s" not in read_text(JOB + "deadline: 2h\n")[0]
    moment = read_text(JOB + "deadline: 2099-01-01T18:00+01:00\n")[0]
    assert (moment["deadline_s"], "deadline_in_s" in moment) == (4070970000.0, False)
    browser = daemon.browser("user")
    key = re.search(r'name="key" value="(\w+)"', browser.get("/submit").text)[1]
    for _ in range(2):
        answer = browser.send("/submit", text=JOB + "deadline: 2h\n", key=key, do="submit")
        assert answer.status_code == 303
    assert len(jobs_of(daemon)) == 1


def test_a_part_of_a_batch_that_was_refused_is_mended_and_sent_again(daemon: Any) -> None:
    browser = daemon.browser("user")
    key = re.search(r'name="key" value="(\w+)"', browser.get("/submit").text)[1]
    first = "jobs:\n- {name: a, command: [a]}\n- {name: b, command: [b], scale_factor: 99}\n"
    page = browser.send("/submit", text=first, key=key, do="submit")
    assert f'name="key" value="{key}"' in page.text
    answer = browser.send("/submit", text="{name: b, command: [b]}", key=key, do="submit")
    assert answer.status_code == 303
    assert sorted(job["name"] for job in jobs_of(daemon)) == ["a", "b"]


def test_a_key_of_a_form_is_never_anything_else(daemon: Any) -> None:
    for key in ("x" * 9000, "\u00e4", "", "a" * 31 + "\n"):
        page = daemon.browser("user").send("/submit", text=JOB, key=key, do="check")
        found = re.search(r'name="key" value="([^"]*)"', page.text)[1]
        assert re.fullmatch("[0-9a-f]{32}", found)
        assert found != key


def test_several_jobs_are_submitted_each_for_itself(daemon: Any) -> None:
    many = "jobs:\n- {name: a, command: [a]}\n- {name: b, command: [b], scale_factor: 99}\n"
    page = daemon.browser("user").send("/submit", text=many, do="submit")
    assert "1 of 2 submitted" in plain(page)
    assert "Job 1: " in plain(page)
    assert [job["name"] for job in jobs_of(daemon)] == ["a"]
    array = JOB + "array: 30\n"
    page = daemon.browser("user").send("/submit", text=array, do="submit")
    assert "30 of 30 submitted" in plain(page)
    assert "and 10 more" in plain(page)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text holds no job"),
        ("name: [", "the text: "),
        ("name: &a train\ncommand: [*a]\n", "the text has aliases"),
        ("a: &a [*a, *a]", "the text has aliases"),
        ("name: a\nname: b\n", "key 'name' is there already, in line 1"),
        ("name: train\n", "command"),
        (JOB + "colour: red\n", "colour"),
        (JOB + "deadline: soon\n", "deadline is 'soon'"),
        (JOB + "deadline: 2099-01-01 18:00\n", "without a zone, which this page does not know"),
        (JOB + "duration: yes please\nmemory: much\n", "memory is 'much'"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_a_mistake_is_named_and_nothing_typed_is_lost(daemon: Any, text: str, message: str) -> None:
    for do in ("check", "submit"):
        page = daemon.browser("user").send("/submit", text=text, do=do)
        assert page.status_code in {200, 422}
        assert message in plain(page)
        if len(text) < 1000:
            assert text_of(page) == text
    assert jobs_of(daemon) == []


def test_a_field_that_cannot_be_read_is_named_and_kept(daemon: Any) -> None:
    for fields, message in (
        ({"command": "python 'x"}, "command is 'python 'x': No closing quotation"),
        ({"workers": "two"}, "workers is 'two'; give a number"),
        ({"steps": "many"}, "steps is 'many'; give a number"),
        ({"duration": "long"}, "duration is 'long'"),
        ({"steps": "nan"}, "total_steps"),
    ):
        given = {"name": "train", "command": "python"} | fields
        page = daemon.browser("user").send("/submit", **given, do="submit")
        assert message in plain(page)
        (name, value), *_ = fields.items()
        assert f'name="{name}"' in page.text
        assert unescape(page.text).count(f'value="{value}"') == 1
    assert jobs_of(daemon) == []


def test_a_text_has_a_bound() -> None:
    with pytest.raises(InputError, match="are the most"):
        read_text("#" * (MOST_TEXT + 1))


def test_yaml_reads_as_it_was_written() -> None:
    job = {"name": "a", "command": ["echo", "no", "1e3", "2099-01-01", "a: b", "ä\u2028"]}
    assert read_text(write_yaml(job)) == [job]
    assert read_fields({"name": "a", "command": "b"} | dict.fromkeys(REST, "")) == {
        "name": "a",
        "command": ["b"],
    }


GIVEN = {"name": "train", "command": ["python", "train.py"]}
REST = ("project", "workers", "job_type", "steps", "duration")


def test_a_job_is_copied_into_the_form_without_what_is_not_shown(daemon: Any) -> None:
    owner = daemon.browser("user", subject="ann")
    job = daemon.caller("user", subject="ann").submit(
        project="vision",
        scale_factor=2,
        total_steps=100.0,
        env={"LR": "0.1"},
        labels={"team": "a"},
        deadline_in_s=5000.0,
    )
    mine = owner.get(f"/submit?from={job}")
    assert yaml.safe_load(text_of(mine)) == {
        "name": "train",
        "command": ["python"],
        "project": "vision",
        "scale_factor": 2,
        "total_steps": 100.0,
        "env": {"LR": "0.1"},
        "labels": {"team": "a"},
    }
    other = daemon.browser("user", subject="bob").get(f"/submit?from={job}")
    assert "env" not in yaml.safe_load(text_of(other))
    assert "env.LR: its value is not shown; add it" in other.text
    assert owner.send("/submit", text=text_of(mine), do="submit").status_code == 303
    assert f"submit?from={job}" in owner.get(f"/jobs/{job}").text
    assert f"submit?from={job}" not in daemon.browser("viewer").get(f"/jobs/{job}").text


def test_the_page_of_a_job_has_its_specification_as_yaml(daemon: Any) -> None:
    given = {
        "name": "train",
        "command": ["python", "<b>", 'a "quoted" word'],
        "project": "vision",
        "scale_factor": 2,
        "env": {"LR": "0.1"},
    }
    caller = daemon.caller("user", subject="ann")
    job = caller.submit(**given)
    browser = daemon.browser("user", subject="ann")
    found = re.search(
        r"Specification as YAML.>(.*?)</pre>", browser.get(f"/jobs/{job}").text, re.DOTALL
    )
    shown = yaml.safe_load(unescape(found[1]))
    assert shown == given
    again = caller.submit(**shown)
    specs = [caller.get(f"/v1/jobs/{one}").json()["spec"] for one in (job, again)]
    assert specs[0] == specs[1]
    assert "0.1" not in daemon.browser("user", subject="bob").get(f"/jobs/{job}").text


def test_an_element_of_an_array_is_copied_as_a_job_of_its_own(daemon: Any) -> None:
    given = {"name": "sweep", "command": ["a"], "array": {"count": 2}, "env": {"LR": "1"}}
    caller = daemon.caller("user", subject="ann")
    first, _ = (one["job_id"] for one in caller.post("/v1/jobs", json=given).json()["jobs"])
    page = daemon.browser("user", subject="ann").get(f"/submit?from={first}")
    found = yaml.safe_load(text_of(page))
    assert (found["name"], found["env"]) == ("sweep", {"LR": "1"})
    assert "is an element of an array" in page.text
    tried = daemon.browser("user", subject="ann").send("/submit", text=text_of(page), do="check")
    assert "1 of 1 could run" in plain(tried)
    other = daemon.browser("user", subject="bob").get(f"/submit?from={first}").text
    assert "env.LR: its value is not shown; add it" in other
    assert "LEASEHOLD_ARRAY" not in other


def test_jobs_that_are_gone_are_no_dependencies_of_a_copy(daemon: Any) -> None:
    other = daemon.caller("admin").submit()
    job = daemon.caller("admin").submit(depends_on=[other])
    row = daemon.service.store.job(job)
    spec = {**row.spec, "depends_on": [other, "gone"]}
    daemon.service.store._jobs[job] = dataclasses.replace(row, spec=spec)
    page = daemon.browser("admin").get(f"/submit?from={job}")
    assert yaml.safe_load(text_of(page))["depends_on"] == [other]
    assert "depends_on: left out gone" in page.text


def test_a_confined_session_submits_to_its_projects_and_copies_from_them_only(daemon: Any) -> None:
    foreign = daemon.caller("admin").submit(project="speech")
    browser = daemon.browser("user", projects=("vision",))
    assert browser.get(f"/submit?from={foreign}").status_code == 404
    page = browser.send("/submit", text=JOB + "project: speech\n", do="submit")
    assert "0 of 1 submitted" in plain(page)
    assert browser.send("/submit", text=JOB, do="submit").status_code == 303
    assert sorted(job["project"] for job in jobs_of(daemon)) == ["speech", "vision"]


def test_a_viewer_has_no_link_to_it(daemon: Any) -> None:
    assert 'href="./submit"' not in daemon.browser("viewer").get("/jobs").text
    assert 'href="./submit"' in daemon.browser("user").get("/jobs").text


def test_a_standby_cannot_submit_and_says_so(daemon: Any) -> None:
    daemon.service.leading = False
    daemon.service.failure = NotLeadingError("http://other:8642")
    assert daemon.browser("user").send("/submit", text=JOB, do="submit").status_code == 503


def test_a_form_waits_for_a_scheduler_that_is_starting(daemon: Any, monkeypatch: Any) -> None:
    daemon.service.leading = daemon.service.ready = False
    daemon.service.failure = StartingError("starting")
    browser = daemon.browser("user")
    assert "This scheduler cannot act yet" in browser.get("/jobs").text
    monkeypatch.setattr(routing, "STARTING_S", 0.3)
    late = browser.send("/submit", text=JOB, do="submit")
    assert late.status_code == 503
    assert text_of(late) == JOB  # nothing that was typed is lost
    assert "this scheduler is starting; try again" in late.text
    monkeypatch.setattr(routing, "STARTING_S", 30.0)

    async def start(seconds: float) -> None:
        daemon.service.leading, daemon.service.failure = True, None

    monkeypatch.setattr(routing.anyio, "sleep", start)
    assert browser.send("/submit", text=JOB, do="submit").status_code == 303


def test_the_call_sends_the_same_job(daemon: Any) -> None:
    text = 'name: train\ncommand: ["it\'s $HOME"]\n'
    page = daemon.browser("user").send("/submit", text=text, do="check")
    call = unescape(re.search(r'"As a call of curl">([^<]*)<', page.text)[1])
    words = shlex.split(call)
    assert json.loads(words[words.index("-d") + 1]) == yaml.safe_load(text)
