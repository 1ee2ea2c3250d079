"""Lists, details, explanations, the live view, nodes, policy, projects, tokens."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from scheduler.views.types import JobAhead


@pytest.fixture
def job(scheduler, leasehold):
    """Return the id of a waiting job."""
    return leasehold("submit", "--label", "k=v", "--steps", "10", "--", "./train").out.strip()


def test_jobs_are_listed_and_filtered(job, scheduler, leasehold):
    assert leasehold("submit", "--project", "other", "--", "./other").code == 0
    scheduler.do(scheduler.service.run, job)
    everything = leasehold("jobs")
    assert everything.code == 0
    assert [line.split()[0] for line in everything.out.splitlines()] == ["job", "job-2", "job-1"]
    assert "running" in everything.out
    assert "turn" in everything.out
    for filters in (["--status", "running,held"], ["--label", "k=v"], ["--project", "default"]):
        assert "job-2" not in leasehold("jobs", *filters).out
    assert leasehold("jobs", "--owner", "nobody").out == "no jobs\n"
    assert leasehold("jobs", "--job-type", "x").out == "no jobs\n"
    by_name = leasehold("jobs", "--sort", "name", "--json")
    assert [j["name"] for j in json.loads(by_name.out)["jobs"]] == ["other", "train"]


def test_a_list_that_is_cut_says_so_and_all_pages_can_be_had(scheduler, leasehold):
    assert leasehold("submit", "--array", "3", "--", "./train").code == 0
    ran = leasehold("jobs", "--limit", "2")
    assert "there are more than 2; --all" in ran.err
    found = json.loads(leasehold("jobs", "--limit", "2", "--json").out)
    assert (len(found["jobs"]), found["more"]) == (2, True)
    found = json.loads(leasehold("jobs", "--all", "--json").out)
    assert (len(found["jobs"]), found["more"]) == (3, False)


def test_a_filter_that_is_none_is_named(scheduler, leasehold):
    ran = leasehold("jobs", "--status", "asleep")
    assert ran.code == 2
    assert "  --status is" in ran.err


def test_a_job_is_shown_with_its_attempts_and_history(job, scheduler, leasehold):
    scheduler.do(scheduler.service.run, job)
    shown = leasehold("job", job).out
    for words in ("./train", "v100 x 1 on alpha", "k=v", "lease granted", "0 of 10 (0%)"):
        assert words in shown
    assert ["rho", "1.00"] in [line.split() for line in shown.splitlines()]
    found = json.loads(leasehold("job", job, "--json").out)
    assert found["spec"]["command"] == ["./train"]
    assert [a["attempt"] for a in found["attempts_made"]] == [1]
    assert [e["kind"] for e in found["events"]] == ["job_submitted", "lease_granted"]
    (newest,) = json.loads(leasehold("job", job, "--json", "--events", "1").out)["events"]
    assert newest["kind"] == "lease_granted"
    assert "history; --events" not in leasehold("job", job, "--events", "2").err
    assert (
        "the newest 1 lines of its history; --events N"
        in leasehold("job", job, "--events", "1").err
    )


@pytest.mark.parametrize(
    ("work", "done", "shown"),
    [
        (["--duration", "2m"], 30.0, ("25%", "30s of 2m00s (25%)")),
        (["--steps", "200"], 30.0, ("15%", "30 of 200 (15%)")),
        (["--duration", "2m"], 500.0, ("-", "8m20s of 2m00s (-)")),  # it counts steps
        ([], 30.0, ("-", "30 of an unknown number")),
    ],
)
def test_progress_is_the_part_of_the_work_that_is_done(work, done, shown, scheduler, leasehold):
    progress, line = shown
    assert leasehold("submit", "--name", "a", *work, "--", "./a").code == 0
    service = scheduler.service
    scheduler.do(service.run, "job-1")
    scheduler.do(service._replace, service.store.job("job-1"), "noted", "", steps_done=done)
    heading, row = leasehold("jobs").out.splitlines()
    assert dict(zip(heading.split(), row.split(), strict=False))["progress"] == progress
    assert line in leasehold("job", "job-1").out
    scheduler.do(service.finish, "job-1")
    assert " 100% " in leasehold("jobs").out


def test_waits_between_attempts_do_not_count_as_running(job, scheduler, leasehold):
    service = scheduler.service
    scheduler.do(service.run, job)
    service.now_s += 90
    scheduler.do(service.finish, job)
    service.now_s += 3600
    scheduler.do(service.run, job)  # as after a requeue, an hour later
    service.now_s += 35
    scheduler.do(service.finish, job)
    (shown,) = json.loads(leasehold("jobs", "--json").out)["jobs"]
    assert shown["ran_s"] == 125.0
    assert "2m05s" in leasehold("jobs").out
    assert "2m05s" in leasehold("job", job).out


def test_what_cannot_be_done_to_a_job_that_has_ended_ends_with_6(job, scheduler, leasehold):
    ran = leasehold("set", job, "--deadline", "2001-01-01T00:00:00Z")
    assert ran.code == 2
    assert "--deadline is 2001-01-01T00:00:00+00:00, which has passed" in ran.err
    scheduler.do(scheduler.service.finish, job)
    for words in (["cancel"], ["hold"], ["set", "--weight", "2"]):
        ran = leasehold(words[0], job, *words[1:])
        assert (ran.code, ran.out) == (6, "")
        assert "has ended" in ran.err
    other = leasehold("submit", "--", "./other").out.strip()
    assert leasehold("cancel", other).code == 0
    assert leasehold("cancel", other).out == f"{other} unchanged\n"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--name", "a b", "must begin with a letter A-Z or a digit, and may contain letters"),
        ("--type", "v100$", "letters, digits, '.', '_', ':', '+', '/', '-' and spaces"),
        ("--project", "-x", "must begin with a letter A-Z or a digit"),
        ("--label", "a b=c", "letters, digits, '.', '_', '/' and '-'"),
        ("--env", "1A=c", "must begin with a letter A-Z or '_'"),
    ],
)
def test_a_name_that_is_refused_comes_with_the_characters_it_may_have(
    scheduler, leasehold, option, value, said
):
    ran = leasehold("submit", option, value, "--", "./x")
    assert ran.code == 2
    assert said in ran.err
    assert "^[" not in ran.err


def test_an_explanation_has_reason_place_and_time(job, leasehold):
    shown = leasehold("explain", job).out
    assert "job-1 is waiting: turn" in shown
    assert "queue:     1 of 1" in shown
    assert "starts:" in shown
    found = json.loads(leasehold("explain", job, "--json").out)
    assert (found["reason"], found["position"]) == ("turn", 1)


def test_an_explanation_lists_the_jobs_right_before_it(job, scheduler, leasehold, monkeypatch):
    other = leasehold("submit", "--", "./other").out.strip()
    assert "right before it" not in leasehold("explain", job).out
    shown = leasehold("explain", other).out
    assert shown.endswith(
        "  right before it in the queue:\n    default/job-1, 1m30s behind its share\n"
    )
    explain = scheduler.service.explain

    async def hidden(row, *, forecast=True):
        foreign = JobAhead(job_id="", project="", is_planned=True, lag_s=-4.0)
        return replace(await explain(row, forecast=forecast), ahead=(foreign,))

    monkeypatch.setattr(scheduler.service, "explain", hidden)
    shown = leasehold("explain", other).out
    assert shown.endswith("queue:\n    a job of another project, has workers in the next round\n")
    found = json.loads(leasehold("explain", other, "--json").out)
    assert found["ahead"] == [{"job_id": "", "project": "", "is_planned": True, "lag_s": -4.0}]


def test_an_explanation_quotes_what_a_failed_job_said_last(job, scheduler, leasehold, monkeypatch):
    explain = scheduler.service.explain

    async def failed(row, *, forecast=True):
        found = await explain(row, forecast=forecast)
        return replace(found, stderr_tail="loading\n\tOSError: \x1b[31mno such file")

    monkeypatch.setattr(scheduler.service, "explain", failed)
    shown = leasehold("explain", job).out
    assert "it said last:\n    loading\n            OSError: " in shown
    assert "\x1b" not in shown
    found = json.loads(leasehold("explain", job, "--json").out)
    assert found["stderr_tail"].startswith("loading")


@pytest.mark.parametrize("command", ["job", "explain", "logs", "watch"])
def test_a_job_that_is_not_there_ends_with_5(command, scheduler, leasehold):
    ran = leasehold(command, "nothing")
    assert ran.code == 5
    assert "'nothing'" in ran.err


def test_jobs_are_acted_on_by_id_and_by_selector(job, scheduler, leasehold):
    assert leasehold("hold", job).out == "job-1 held\n"
    assert leasehold("hold", job).out == "job-1 unchanged\n"
    assert leasehold("release", "--selector", "label.k=v").out == "job-1 released\n"
    ran = leasehold("set", job, "--weight", "3", "--deadline", "2h", "--json")
    assert json.loads(ran.out)["changed"] == 1
    row = scheduler.service.store.job(job)
    assert row.weight == 3
    assert row.deadline_s > row.submitted_s + 7000
    assert leasehold("set", job, "--deadline", "none").code == 0
    assert scheduler.service.store.job(job).deadline_s is None
    assert leasehold("cancel", "-s", "owner=anonymous", "-s", "status=waiting,held").code == 0
    assert scheduler.service.store.job(job).status == "cancelled"
    assert leasehold("requeue", job).out == "job-1 requeued\n"
    ran = leasehold("cancel", "-s", "project=none")
    assert (ran.code, ran.err) == (0, "leasehold: no job matches\n")


def test_what_could_not_be_done_makes_the_exit_code(job, scheduler, leasehold):
    assert leasehold("cancel", "nothing").code == 5
    scheduler.do(scheduler.service.run, job)
    assert leasehold("release", job).code == 6
    ran = leasehold("cancel", job, "nothing")
    assert (ran.code, ran.out) == (1, "job-1 cancelled\n")
    assert "nothing: there is no job" in ran.err


@pytest.mark.parametrize(("arguments", "said"), [
    (["cancel"], "give job ids, or --selector"),
    (["cancel", "a", "-s", "owner=b"], "not both"),
    (["cancel", "-s", "owner"], "--selector is 'owner'"),
    (["cancel", "-s", "colour=red"], "'colour' is unknown"),
    (["cancel", "-s", "owner="], "--selector owner is ''"),
    (["cancel", "-s", "status="], "--selector status is ''"),
    (["jobs", "--owner", ""], "--owner is ''"),
    (["jobs", "--status", "held,"], "--status is 'held,'"),
    (["set", "a"], "nothing to set"),
    (["project", "set", "p"], "nothing to set"),
    (["project", "set", "p", "--max-jobs", "few"], "--max-jobs is 'few'"),
    (["logs", "a", "--stream", "x"], "--stream is 'x'"),
    (["throughputs", "--declare", "v100=1"], "needs --job-type"),
    (["throughputs", "--forget"], "needs --job-type"),
    (["throughputs", "--forget", "--job-type", "a", "--type", "v100"], "leave out --type"),
    (["nodes", "--forget"], "name the node"),
    (["jobs", "--retry-for", "x"], "--retry-for is 'x'"),
    (["top", "--every", "0"], "--every is '0'; give a span of 0.2 s or more"),
])  # fmt: skip
def test_options_that_make_no_sense_are_named(arguments, said, leasehold):
    ran = leasehold(*arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())


def test_nodes_are_shown_drained_and_forgotten(job, scheduler, leasehold):
    scheduler.do(scheduler.service.run, job)
    assert "v100:8" in leasehold("nodes").out
    assert "job-1" in leasehold("nodes", "alpha").out
    assert leasehold("cordon", "alpha", "--reason", "fan is broken").out == "alpha cordoned\n"
    assert "fan is broken" in leasehold("nodes").out
    assert leasehold("uncordon", "alpha").out == "alpha ready\n"
    assert leasehold("nodes", "alpha", "--forget").code == 6
    found = json.loads(leasehold("drain", "alpha", "-r", "move", "--json").out)
    assert found["nodes"][0]["state"] == "draining"
    ran = leasehold("nodes", "alpha", "--forget", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"forgotten": ["alpha"], "failed": []})
    assert leasehold("nodes").out == "no nodes\n"
    assert leasehold("drain", "alpha").code == 5
    assert json.loads(leasehold("nodes", "--json").out) == {"nodes": []}


def test_a_node_that_is_not_there_keeps_none_of_the_others(scheduler, leasehold):
    ran = leasehold("cordon", "nosuch", "alpha", "neither")
    assert (ran.code, ran.out) == (1, "alpha cordoned\n")
    for name, line in zip(("nosuch", "neither"), ran.err.splitlines(), strict=True):
        assert f"there is no node '{name}'" in line
    ran = leasehold("uncordon", "nosuch", "alpha", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["nodes"][0]["state"]) == (1, "ready")
    assert found["failed"][0]["name"] == "nosuch"
    assert leasehold("drain", "nosuch", "neither").code == 5


def test_a_policy_is_tried_before_it_is_switched(scheduler, leasehold):
    leasehold("submit", "--name", "train", "--project", "vision", "--", "true")
    (job,) = json.loads(leasehold("jobs", "--json").out)["jobs"]
    scheduler.do(scheduler.service.run, job["job_id"])
    ran = leasehold("policy", "set", "alpha_fairness", "--param", "alpha=2", "--dry-run")
    assert ran.code == 0
    assert re.search(rf"{job['job_id']} +vision +1 x v100 +-\n", ran.out)
    assert "1 job would hold other workers; 0 jobs would hold the same" in ran.out
    found = json.loads(leasehold("policy", "set", "fifo", "--dry-run", "--json").out)
    assert found["changes"][0] | {"after": {}} == found["changes"][0]
    assert "max_min_fairness" in leasehold("policy").out
    assert leasehold("policy", "set", "nonsense", "--dry-run").code == 5


def test_the_policy_is_shown_and_switched(scheduler, leasehold):
    assert "max_min_fairness" in leasehold("policy").out
    assert "isolated" in leasehold("policy", "list").out
    assert json.loads(leasehold("policy", "list", "--json").out)["policies"]
    ran = leasehold(
        "policy", "set", "alpha_fairness", "--param", "alpha=2", "--space-sharing", "--json"
    )
    found = json.loads(ran.out)
    assert (found["name"], found["parameters"]) == ("alpha_fairness", {"alpha": "2"})
    assert found["space_sharing"]
    assert not found["agnostic"]
    assert "alpha_fairness, space sharing" in leasehold("policy", "show").out
    ran = leasehold("policy", "set", "max_min_fairness", "--packed", "--json")  # its name before
    assert json.loads(ran.out)["space_sharing"]
    assert "--packed is called --space-sharing now" in ran.err
    assert leasehold("policy", "set", "alpha_fairness").code == 0
    assert leasehold("policy", "set", "alpha_fairness", "--param", "beta=2").code == 2
    ran = leasehold("policy", "set", "nonsense")
    assert ran.code == 5
    assert "nonsense" in ran.err
    assert json.loads(leasehold("policy", "--json").out)["name"] == "alpha_fairness"
    assert "Show the policy in force" in leasehold("policy", "--help").out
    ran = leasehold("policy", "set", "")
    assert (ran.code, '  the policy is "": must not be empty' in ran.err) == (2, True)


def test_projects_keep_what_is_not_set_anew(scheduler, leasehold):
    assert leasehold("project").out == "no projects\n"
    assert leasehold("project", "set", "p", "--weight", "2", "--max-workers", "4").code == 0
    ran = leasehold("project", "set", "p", "--max-jobs", "9", "--inner-policy", "fifo", "--json")
    limits = {
        "project": "p",
        "weight": 2.0,
        "inner_policy": "fifo",
        "max_workers": 4,
        "max_jobs": 9,
        **dict.fromkeys(("entities", "job_types", "max_job_weight")),
        "max_workers_of": {},
        "max_workers_per_user": None,
        "max_workers_per_user_of": {},
        "idle_quota": "keep",
        **dict.fromkeys(("budget_gpu_hours", "budget_usd", "budget_warning")),
    }
    assert json.loads(ran.out)["limits"] == limits
    ran = leasehold("project", "set", "p", "--max-workers", "none")
    assert "fifo" in ran.out
    assert (
        json.loads(leasehold("project", "--json").out)["projects"][0]["limits"]["max_workers"]
        is None
    )


def test_quotas_of_worker_types_and_of_users_are_set_and_shown(scheduler, leasehold):
    def limits(*options):
        ran = leasehold("project", "set", "p", *options, "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["limits"]

    found = limits("--max-workers", "8,v100=4,k80=6", "--idle-quota", "share")
    assert (found["max_workers"], found["max_workers_of"]) == (8, {"v100": 4, "k80": 6})
    assert found["idle_quota"] == "share"
    found = limits("--max-workers-per-user", "v100=1")
    assert found["max_workers_of"] == {"v100": 4, "k80": 6}  # values left out stay
    assert (found["max_workers_per_user"], found["max_workers_per_user_of"]) == (None, {"v100": 1})
    shown = leasehold("project").out
    assert "8,k80=6,v100=4" in shown
    assert "v100=1" in shown
    assert "share" in shown
    assert limits("--max-workers", "none")["max_workers_of"] == {}
    for wrong in ("x", "v100=", "=3", "v100=-1", "1.5"):
        ran = leasehold("project", "set", "p", "--max-workers", wrong)
        assert ran.code != 0
        assert f"--max-workers is '{wrong}'" in ran.err
    ran = leasehold("project", "set", "p", "--idle-quota", "borrow")
    assert "--idle-quota is 'borrow'; give keep, lend, share" in ran.err


def test_throughputs_are_declared_and_shown(scheduler, leasehold):
    assert leasehold("throughputs").out == "no throughputs\n"
    ran = leasehold("throughputs", "--job-type", "t", "--declare", "v100=2,p100=1", "-w", "2")
    assert "2 of 2 figures changed" in ran.err
    assert "v100" in ran.out
    found = json.loads(leasehold("throughputs", "--type", "p100", "--json").out)["throughputs"]
    assert [(t["job_type"], t["scale_factor"], t["declared"]) for t in found] == [("t", 2, 1.0)]
    ran = leasehold("throughputs", "--forget", "--job-type", "t")
    assert "2 figures of 't' forgotten" in ran.err
    assert ran.out == "no throughputs\n"
    assert leasehold("throughputs", "--forget", "--job-type", "t").code == 5


def test_a_secret_is_printed_once_and_never_listed(scheduler, leasehold):
    ran = leasehold("token", "create", "bob", "--role", "user", "-p", "a,b", "--ttl", "30d")
    secret = ran.out.strip()
    assert secret.startswith("lh_")
    assert secret not in ran.err
    listed = leasehold("token")
    assert secret not in listed.out
    assert "a,b" in listed.out
    found = json.loads(leasehold("token", "list", "--json").out)["tokens"]
    assert secret not in json.dumps(found)
    assert leasehold("token", "revoke", found[0]["token_id"]).out.endswith("revoked\n")
    assert "revoked" in leasehold("token", "list").out
    assert leasehold("token", "revoke", "t-none").code == 5
    ran = leasehold("token", "revoke", found[0]["token_id"], "t-none", "--json")
    assert (ran.code, json.loads(ran.out)["revoked"]) == (1, [found[0]["token_id"]])
    ran = leasehold("token", "enrol", "alpha", "--ttl", "10m")
    assert ran.out.strip()
    assert "for alpha, until" in ran.err
    assert json.loads(leasehold("token", "enrol", "--json").out)["secret"]
    assert leasehold("token", "whoami").out == "anonymous (admin, all projects)\n"
    assert json.loads(leasehold("token", "whoami", "--json").out)["role"] == "admin"
    assert leasehold("token", "create", "bob", "--role", "king").code == 2


@pytest.mark.parametrize("words", [("enrol", "alpha"), ("create", "bob")])
def test_a_secret_goes_into_a_new_file_of_the_owners_own(words, scheduler, leasehold, tmp_path):
    file = tmp_path / "secret"
    ran = leasehold("token", *words, "--out", str(file))
    assert (ran.code, ran.out) == (0, "")
    secret = file.read_text().strip()
    assert len(secret) > 20
    assert secret not in ran.err
    assert file.stat().st_mode & 0o777 == 0o600
    again = leasehold("token", *words, "--out", str(file))
    assert again.code == 2
    assert "exists" in again.err
    assert file.read_text().strip() == secret
    other = tmp_path / "other"
    kept = json.loads(leasehold("token", *words, "--out", str(other), "--json").out)
    assert not {"secret", "token"} & kept.keys()
    # What cannot be made leaves no file behind.
    refused = tmp_path / "refused"
    assert leasehold("token", words[0], "*", "--out", str(refused)).code == 2
    assert not refused.exists()
    assert leasehold("token", *words, "--out", str(tmp_path / "no" / "file")).code == 2


@pytest.mark.parametrize("project", ["default", "vision", "vision-and-language-understanding"])
def test_lists_fit_a_terminal_of_80_columns(project, scheduler, leasehold, monkeypatch):
    for name in ("resnet50", "bert"):
        assert leasehold("submit", "-n", name, "-p", project, "--", "./x").code == 0
    scheduler.do(scheduler.service.run, "job-1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # as on a terminal, without its bold type
    monkeypatch.setenv("TERM", "dumb")
    shown = leasehold("jobs").out.splitlines()
    assert [len(shown), max(map(len, shown)) <= 80] == [3, True]
    assert {"job", "status", "progress", "age"} <= set(shown[0].split())
    assert ("project" in shown[0]) is (project == "vision")  # no room for the longest
    frame = leasehold("top", "--once").out.splitlines()
    assert max(map(len, frame)) <= 80
    assert sum("job-1" in line for line in frame) == 1
    wide = leasehold("jobs", "--json")
    assert {job["project"] for job in json.loads(wide.out)["jobs"]} == {project}


def test_tables_fit_the_terminal_and_piped_nothing_is_cut(scheduler, leasehold, monkeypatch):
    for name in ("a" * 100, "short"):
        words = ["--label", f"k={'v' * 90}", "--after", "job-1"] if name == "short" else []
        assert leasehold("submit", "-n", name, *words, "--", "./x", f"/{'p' * 99}").code == 0
    scheduler.do(scheduler.service.run, "job-1", nodes=("n" * 60, "m" * 60))
    long = ("a" * 100, "/" + "p" * 99, "n" * 60, "m" * 60)
    shown = leasehold("job", "job-1").out
    for word in long:
        assert word in shown.replace(",", " ").split()
    assert f"k={'v' * 90}" in leasehold("job", "job-2").out.split()
    assert "a" * 100 in leasehold("jobs").out
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")
    listed = leasehold("jobs").out
    assert max(map(len, listed.splitlines())) <= 80
    assert "aaa\N{HORIZONTAL ELLIPSIS}  " in listed
    shown = leasehold("job", "job-1").out
    assert max(map(len, shown.splitlines())) <= 80
    # Long values of fields go on in the next line, so nothing of them is lost.
    fields = "".join(line[13:].strip() for line in shown.split("\n\n")[0].splitlines())
    for word in long:
        assert word in fields
    for command in (
        ["nodes"],
        ["nodes", "alpha"],
        ["project"],
        ["policy", "list"],
        ["top", "--once"],
    ):
        assert max(map(len, leasehold(*command).out.splitlines())) <= 80, command


def test_one_frame_of_top_has_nodes_leases_queue_and_round(job, scheduler, leasehold):
    assert leasehold("submit", "--", "./next").code == 0
    scheduler.do(scheduler.service.run, job)
    shown = leasehold("top", "--once").out
    for words in (scheduler.url, "max_min_fairness", "alpha", "v100 x 1", "job-2", "round"):
        assert words in shown
    found = json.loads(leasehold("top", "--once", "--json").out)
    assert set(found) == {"at_s", "server", "cluster", "policy", "nodes", "leases", "waiting"}


@pytest.mark.parametrize("command", [["top", "--every", "0.2s"], ["jobs", "--watch"]])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_live_views_go_on_through_a_restart_until_they_are_interrupted(
    command, flags, job, *, scheduler, leasehold, monkeypatch
):
    from leasehold.cli.session import live_view

    frames = []

    def sleep(_: float) -> None:
        frames.append(1)
        if len(frames) == 1:
            scheduler.stop()
        elif flags and len(frames) == 2:
            scheduler.start()
        elif not flags or len(frames) == 4:
            raise KeyboardInterrupt

    show = live_view.show_live
    for module in ("top", "jobs"):
        monkeypatch.setattr(
            f"leasehold.cli.service.{module}.show_live",
            lambda service, **kwargs: show(service, **kwargs, sleep=sleep),
        )
    ran = leasehold(*command, *flags, "--retry-for", "0")
    assert ran.code == 130
    if flags:
        assert len(ran.out.splitlines()) >= 2
        assert "trying again" in ran.err
    else:
        assert job in ran.out
        assert "trying again" in ran.out  # the last frame that is drawn stays
