"""``leasehold reservation``: add, list, show, delete."""

from __future__ import annotations

import json

ADD = ("reservation", "add", "class", "-t", "v100", "-n", "2", "--until", "3h")


def test_a_reservation_is_made_shown_and_given_up(scheduler, leasehold):
    assert leasehold("reservation").out == "no reservations\n"
    ran = leasehold(*ADD, "--from", "1h", "--project", "vision", "--user", "ann")
    assert ran.code == 0, ran.err
    heading, line = ran.out.splitlines()
    assert heading.split() == [
        "name",
        "state",
        "workers",
        "assigned",
        "used",
        "from",
        "until",
        "for",
    ]
    assert line.split()[:5] == ["class", "planned", "v100:2", "2", "0"]
    assert line.endswith("project vision, user ann")
    assert leasehold("reservation").out == ran.out
    (found,) = json.loads(leasehold("reservation", "list", "--json").out)["reservations"]
    rule = found["reservation"]
    assert rule["until_s"] - rule["from_s"] == 7200.0
    shown = leasehold("reservation", "show", "class").out
    assert shown.startswith(ran.out)
    assert shown.splitlines()[-1] == "nodes: node-0: 2"
    assert json.loads(leasehold("reservation", "show", "class", "--json").out) == found
    assert leasehold(*ADD, "--project", "vision", "--json").code != 0  # there is one of that name
    assert leasehold("reservation", "delete", "class").out == "class deleted\n"
    assert leasehold("reservation", "show", "class").code != 0


def test_a_name_that_is_probably_misspelt_is_remarked_upon(scheduler, leasehold):
    leasehold("project", "set", "vision", "--weight", "2")
    said = "leasehold: no project 'vison' has limits or active jobs; did you mean 'vision'?\n"
    assert leasehold(*ADD, "--project", "vison").err == said
    assert leasehold("reservation", "delete", "class").code == 0
    assert leasehold("token", "create", "ann", "--project", "vison").err.startswith(said)
    assert "did you mean" not in leasehold(*ADD, "--project", "new").err
    ran = leasehold("project", "set", "vision", "--max-workers", "v1000=2")
    assert ran.err == "leasehold: no node has workers of type 'v1000'; did you mean 'v100'?\n"
    assert leasehold("project", "set", "vision", "--max-workers", "v100=2").err == ""


def test_what_cannot_be_is_refused(scheduler, leasehold):
    for words, said in (
        (ADD, "the owner is missing; give --project, --user or --job"),
        ((*ADD, "-p", "vision", "--from", "9h"), "until"),
        ((*ADD[:-1], "yesterday", "-p", "vision"), "--until is 'yesterday'"),
        ((*ADD[:-1], "2020-01-01", "-p", "vision"), "'2020-01-01', which is not after now"),
    ):
        ran = leasehold(*words)
        assert ran.code != 0, words
        assert said in ran.err


def test_a_job_is_meant_by_its_name(scheduler, leasehold):
    job_id = leasehold("submit", "--name", "train", "--", "python").out.split()[0]
    for word in ("train", job_id):
        made = json.loads(leasehold(*ADD, "--job", word, "--json").out)
        assert made["reservation"]["job"] == job_id
        leasehold("reservation", "delete", "class")
    ran = leasehold(*ADD, "--job", "trian")
    assert ran.code != 0
    assert "there is no job 'trian'" in ran.err
    leasehold("cancel", job_id)
    ran = leasehold(*ADD, "--job", "train")
    assert ran.code != 0
    assert f"'{job_id}'" in ran.err
    assert "has ended as cancelled" in ran.err


def test_what_became_of_a_reservation_is_said(scheduler, leasehold):
    leasehold(*ADD, "--project", "vision")
    leasehold("reservation", "delete", "class")
    ran = leasehold("reservation", "show", "class")
    assert ran.code != 0
    assert "there is no reservation 'class' any more: it was given up at" in ran.err
    assert "there is no reservation 'none';" in leasehold("reservation", "show", "none").err
