"""``leasehold webhook``: register, list, test, resume, delete."""

from __future__ import annotations

import json

from scheduler.webhooks.webhooks import Posted

ADD = ("webhook", "add", "ops", "--url", "https://example.com/x", "--on", "job.failed,node.lost")


def test_a_webhook_is_registered_listed_tested_and_deleted(scheduler, leasehold, tmp_path):
    assert leasehold("webhook").out == "no webhooks\n"
    ran = leasehold(*ADD)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("whsec_")
    assert "its secret is shown this once" in ran.err
    heading, line = leasehold("webhook").out.splitlines()
    assert heading.split()[:3] == ["webhook", "to", "project"]
    assert line.split()[:5] == ["ops", "https://example.com", "all", "job_failed,node_lost", "ok"]
    (found,) = json.loads(leasehold("webhook", "list", "--json").out)["webhooks"]
    assert found["on"] == ["job_failed", "node_lost"]
    assert "secret" not in found
    assert leasehold("webhook", "test", "ops").out == "webhook ops: taken, status 200\n"
    scheduler.service.webhooks.post.answers = [Posted(status=500, problem="status 500")] * 2
    ran = leasehold("webhook", "test", "ops")
    assert (ran.code, ran.out) == (1, "webhook ops: not taken: status 500\n")
    ran = leasehold("webhook", "test", "ops", "--json")
    assert (ran.code, json.loads(ran.out)["delivered"]) == (1, False)
    assert "from now on" in leasehold("webhook", "resume", "ops", "--skip").out
    assert json.loads(leasehold("webhook", "resume", "ops", "--json").out)["name"] == "ops"
    assert leasehold("webhook", "delete", "ops").out == "ops deleted\n"
    assert leasehold("webhook", "delete", "ops").code != 0
    assert leasehold(*ADD).code == 0
    ran = leasehold("webhook", "delete", "none", "ops", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["deleted"]) == (1, ["ops"])
    assert [one["name"] for one in found["failed"]] == ["none"]


def test_webhooks_of_one_name_are_told_apart_by_their_projects(scheduler, leasehold):
    for project in ("vision", "speech"):
        assert leasehold(*ADD, "--project", project).code == 0
    ran = leasehold("webhook", "test", "ops")
    assert ran.code != 0
    assert "of projects speech, vision; give the project" in ran.err
    of_vision = ("ops", "--project", "vision")
    assert leasehold("webhook", "test", *of_vision).code == 0
    assert json.loads(leasehold("webhook", "resume", *of_vision, "--json").out)["project"] == (
        "vision"
    )
    assert leasehold("webhook", "delete", *of_vision).out == "ops deleted\n"
    assert leasehold("webhook", "test", "ops").code == 0


def test_the_secret_can_go_to_a_file_alone(scheduler, leasehold, tmp_path):
    kept = tmp_path / "secret"
    ran = leasehold(*ADD, "--out", kept, "--json")
    assert ran.code == 0, ran.err
    assert kept.read_text().startswith("whsec_")
    assert kept.stat().st_mode & 0o077 == 0
    assert "secret" not in json.loads(ran.out)
    made = json.loads(leasehold(*ADD[:2], "more", *ADD[3:], "--json").out)
    assert made["secret"].startswith("whsec_")


def test_what_cannot_be_is_refused(scheduler, leasehold):
    for changed, said in (
        ((*ADD[:4], "http://example.com", *ADD[5:]), "url"),
        ((*ADD[:6], "job.exploded"), "--on is"),
        ((*ADD[:4], "nix", *ADD[5:]), '--url is "nix"'),
    ):
        ran = leasehold(*changed)
        assert ran.code != 0
        assert said in ran.err
        assert "secret" not in ran.err
