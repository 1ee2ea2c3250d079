"""``leasehold usage``: tables, CSV, JSON."""

from __future__ import annotations

import csv
import json
import time
from dataclasses import replace


def submitted(leasehold, scheduler, project):
    ran = leasehold("submit", "--name", "t", "--project", project, "--type", "t", "--", "true")
    assert ran.code == 0, ran.err
    job = ran.out.strip()
    scheduler.service.run(job)
    return job


def test_use_is_shown_as_a_table_as_csv_and_as_json(scheduler, leasehold):
    assert leasehold("usage").out.startswith("nothing was used\n0 worker-hours from ")
    day_s = 86_400.0
    noon_s = time.time() // day_s * day_s - day_s / 2  # of yesterday: no day ends in between
    for project, hours in (("vision", 1.5), ("nlp", 0.5)):
        scheduler.service.now_s = noon_s
        job = submitted(leasehold, scheduler, project)
        scheduler.service.now_s += hours * 3600.0
        scheduler.service.finish(job)
    ran = leasehold("usage", "--by", "project")
    lines = ran.out.splitlines()
    assert lines[0].split() == ["project", "leases", "worker-hours", "part"]
    assert [line.split() for line in lines[1:3]] == [
        ["vision", "1", "1.5", "75%"],
        ["nlp", "1", "0.5", "25%"],
    ]
    assert lines[3].startswith("2 worker-hours from ")
    rows = list(csv.reader(leasehold("usage", "--by", "project,worker-type", "--csv").out.split()))
    assert rows == [
        ["project", "worker_type", "leases", "worker_s", "gpu_used_s", "gpu_measured_s"],
        ["nlp", "v100", "1", "1800.000000", "", "0.000000"],
        ["vision", "v100", "1", "5400.000000", "", "0.000000"],
    ]
    found = json.loads(leasehold("usage", "--by", "job", "-p", "nlp", "--json").out)
    assert [row["worker_us"] for row in found["usage"]] == [1_800_000_000]
    assert len(leasehold("usage", "--by", "day,project").out.splitlines()) >= 3


def test_what_cannot_be_asked_names_the_option(scheduler, leasehold):
    for words, complaint in (
        (("--by", "colour"), "--by is 'colour'; give any of project, owner"),
        (("--csv", "--json"), "--csv and --json exclude each other"),
        (("--since", "yesterday"), "--since is 'yesterday'"),
        (("--since", "2999-01-01"), "--since is '2999-01-01', which is still to come"),
        (("--since", "1h", "--until", "2h"), "--since is '1h', which is not before --until, '2h'"),
    ):
        ran = leasehold("usage", *words)
        assert ran.code == 2
        assert complaint in ran.err


def test_a_budget_is_set_shown_and_lifted(scheduler, leasehold):
    ran = leasehold("project", "set", "vision", "--budget", "500 gpu-hours, 1000 USD", "--json")
    limits = json.loads(ran.out)["limits"]
    assert (limits["budget_gpu_hours"], limits["budget_usd"]) == (500.0, 1000.0)
    ran = leasehold("project", "set", "vision", "--budget-warning", "0.9", "--json")
    limits = json.loads(ran.out)["limits"]
    assert (limits["budget_gpu_hours"], limits["budget_warning"]) == (500.0, 0.9)
    ran = leasehold("project", "set", "vision", "--budget", "none", "--json")
    assert json.loads(ran.out)["limits"]["budget_usd"] is None
    for text in ("500", "500 apples", "many usd", "-1 usd"):
        ran = leasehold("project", "set", "vision", "--budget", text)
        assert ran.code != 0
        assert "budget" in ran.err


def test_jobs_whose_gpus_hardly_compute_are_listed_the_longest_idle_first(scheduler, leasehold):
    assert leasehold("usage", "--idle").out == "no running job is known to idle\n"
    now_s = time.time()
    for project, idle_s in (("vision", 600.0), ("nlp", 7200.0), ("busy", None)):
        job = submitted(leasehold, scheduler, project)
        leases = scheduler.service._leases
        key = next(key for key, lease in leases.items() if lease.job_id == job)
        since_s = None if idle_s is None else now_s - idle_s
        leases[key] = replace(leases[key], gpu_use=0.015, idle_since_s=since_s)
    lines = leasehold("usage", "--idle").out.splitlines()
    assert lines[0].split()[:2] == ["job", "project"]
    assert [line.split()[1] for line in lines[1:]] == ["nlp", "vision"]
    assert "2h00m" in lines[1]
    rows = list(csv.reader(leasehold("usage", "--idle", "--csv").out.split()))
    assert rows[0][-2:] == ["gpu_use", "idle_s"]
    assert [(row[1], row[6]) for row in rows[1:]] == [("nlp", "0.0150"), ("vision", "0.0150")]
    found = json.loads(leasehold("usage", "--idle", "-p", "vision", "--json").out)["idle"]
    assert [lease["project"] for lease in found] == ["vision"]
    ran = leasehold("usage", "--idle", "--since", "1h")
    assert ran.code == 2
    assert "--since '1h' and --idle exclude each other: it lists running jobs, now" in ran.err


def test_what_a_project_cannot_have_names_the_option(scheduler, leasehold):
    for words, complaint in (
        (("--max-workers", "8,v100=4,v100=2"), "which names 'v100' twice; give each once"),
        (("--max-workers", "8,9"), "which gives all types twice; give each once"),
        (("--max-workers", "many"), "give whole numbers up to"),
        (("--idle-quota", "sell"), "--idle-quota is 'sell'; give keep, lend, share"),
        (("--max-job-weight", "heavy"), "--max-job-weight is 'heavy'; give a finite number, or"),
        (("--max-jobs", "few"), "--max-jobs is 'few'; give a whole number up to"),
        (("--budget", "1 usd, 2 usd"), "which gives usd twice; give it once"),
    ):
        ran = leasehold("project", "set", "vision", *words)
        assert ran.code == 2, words
        assert complaint in ran.err


def test_workers_are_approved_as_given_or_as_the_node_reports_them(scheduler, leasehold):
    assert leasehold("approve", "alpha").out.startswith("alpha may have ")
    ran = leasehold("approve", "alpha", "--worker", "v100:4", "--worker", "t4:2")
    assert ran.out == "alpha may have t4:2 v100:4\n"
    shown = json.loads(leasehold("approve", "alpha", "--worker", "v100:1", "--json").out)
    assert shown["approved"] == {"v100": 1}
