"""Tests of what ``leasehold_testing.changes`` adds, and the packages that it installs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A package of one module, and the test that uses it as people would.

    Attributes:
        module: its text.
        proof: the test's.
    """

    module: str
    proof: str


#: The field comes by REST, by a file and by an option; it is stored, shown and described.
FIELD: Final = """
import httpx
import pytest

from leasehold_testing.stored import entry, job_row, lead
from scheduler.control.facts.specs import spec_from_json
from scheduler.store.sql.store import SqlStore


@pytest.fixture
def spec_of(scheduler):
    return lambda job_id: scheduler.service.store.job(job_id).spec


def test_it_comes_by_rest_and_is_refused_out_of_bounds(scheduler, spec_of):
    job = {"name": "a", "command": ["x"], "total_steps": 5, "warm_up_s": 300}
    answer = httpx.post(f"{scheduler.url}/v1/jobs", json=job)
    assert answer.status_code == 201
    assert spec_of(answer.json()["job_id"])["warm_up_s"] == 300
    refused = httpx.post(f"{scheduler.url}/v1/jobs", json=job | {"warm_up_s": 0})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "warm_up_s"


def test_it_comes_by_a_file_and_by_an_option_and_is_shown(leasehold, scheduler, spec_of, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("{name: a, command: [x], total_steps: 5, warm_up: 5m}")
    by_file = leasehold("submit", str(file)).out.strip()
    by_option = leasehold("submit", "--steps", "5", "--warm-up", "5m", "--", "x").out.strip()
    for job_id in (by_file, by_option):
        assert spec_of(job_id)["warm_up_s"] == 300.0
        assert '"warm_up_s": 300' in leasehold("job", job_id, "--json").out
    assert "Time before it counts steps." in leasehold("submit", "--help").out
    wrong = leasehold("submit", "--warm-up", "5 parsecs", "--", "x")
    assert (wrong.code, "--warm-up is '5 parsecs'" in wrong.err) == (2, True)


def test_it_is_kept_in_a_database(spec_of, leasehold, scheduler, tmp_path):
    job_id = leasehold("submit", "--steps", "5", "--warm-up", "5m", "--", "x").out.strip()
    store = SqlStore.open(f"sqlite:///{tmp_path}/x.db")
    store.commit(entry(1, jobs=(job_row(1, spec=spec_of(job_id)),)), token=lead(store))
    assert spec_from_json(store.job("job-1").spec).warm_up_s == 300.0
    store.close()
"""

#: The filter works over REST, in a selector, on the command line and in a database.
FILTER: Final = """
import httpx

from leasehold_testing.stored import entry, job_row, lead
from scheduler.store.filters import JobFilter
from scheduler.store.queries import JobQuery
from scheduler.store.sql.store import SqlStore


def test_it_tells_jobs_apart_over_rest_and_on_the_command_line(leasehold, scheduler):
    for entity in ("vision", "speech", "text"):
        leasehold("submit", "--steps", "5", "--entity", entity, "--", "x")
    url = f"{scheduler.url}/v1/jobs"
    answer = httpx.get(url, params={"entity": ["vision", "text"]}).json()["jobs"]
    assert {job["entity"] for job in answer} == {"vision", "text"}
    assert httpx.get(url, params={"entity": "no one"}).status_code == 422
    shown = leasehold("jobs", "--entity", "speech,text", "--json").out
    assert ('"speech"' in shown, '"text"' in shown, '"vision"' in shown) == (True, True, False)
    assert leasehold("cancel", "--selector", "entity=speech").code == 0
    left = leasehold("jobs", "--entity", "speech", "--status", "waiting", "--json").out
    assert '"jobs": []' in left


def test_it_tells_rows_of_a_database_apart(tmp_path):
    store = SqlStore.open(f"sqlite:///{tmp_path}/x.db")
    rows = tuple(job_row(n, entity="ab"[n % 2]) for n in range(1, 5))
    store.commit(entry(1, jobs=rows), token=lead(store))
    page = store.jobs(JobQuery(where=JobFilter(entities=("a",))))
    assert [row.number for row in page.rows] == [4, 2]
    assert len(store.jobs(JobQuery(where=JobFilter(entities=("a", "b")))).rows) == 4
    store.close()
"""

SOURCE: Final = Plugin(
    module="""
from scheduler.domain.configuration import CONSOLIDATED, Configuration
from scheduler.domain.sources import ConfigurationSource


class InHalves(ConfigurationSource):
    def ways(self, key, cluster):
        demand = tuple(2 if name == "v100" else 0 for name in cluster.type_names)
        way = Configuration(
            demand=demand, throughput=7.0, doubt=0.1, locality=CONSOLIDATED, plan="halves"
        )
        return (way,) if 2 in key.scale_factors else ()
""",
    proof="""
from planner.knowledge import LearnedKnowledge
from planner.registry import make_sources
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.jobs.spec import JobSpec


def test_a_job_is_offered_what_the_source_knows():
    knowledge = LearnedKnowledge(sources=make_sources(["in_halves"]))
    knowledge.profile_of(JobSpec(name="x", command=("x",), scale_factors=(1, 2), total_steps=9.0))
    table = knowledge.table(parse_cluster_spec("v100:2", workers_per_node=2))
    ways = table.profiles[0].configurations
    assert [(w.plan, w.locality, w.throughput) for w in ways if w.plan] == [
        ("halves", "consolidated", 7.0)
    ]
""",
)

#: The event is written by what decides, and its kind can be asked for.
EVENT: Final = """
from planner.knowledge import LearnedKnowledge
from scheduler.control.control import Control
from scheduler.control.facts.facts import JobsSubmitted
from scheduler.control.facts.requests import PolicyChoice, Submission
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.jobs.spec import JobSpec
from scheduler.views.history_kinds import EventKind


def test_it_is_written_for_jobs_that_have_a_deadline_and_no_others():
    settings = ControlSettings(policy=PolicyChoice(name="max_min_fairness"))
    control = Control.new(settings, knowledge=LearnedKnowledge())
    specs = (
        JobSpec(name="a", command=("x",), total_steps=5.0, deadline_s=1e6),
        JobSpec(name="b", command=("x",), total_steps=5.0),
    )
    items = tuple(Submission(spec=spec, owner="me", job_id=spec.name) for spec in specs)
    fact = JobsSubmitted(
        submissions=items, job_ids=("a", "b"), digests=("d", "d"), actor="me"
    )
    decision = control.handle(fact, now_s=1.0)
    lines = [line for line in decision.rows.history if line.kind == EventKind.DEADLINE_GIVEN]
    assert [(line.subject, line.actor) for line in lines] == [("a", "me")]
"""

#: The metric is scraped.
METRIC: Final = """
from scheduler.views.metrics import Metrics


def test_it_counts_requests_and_not_jobs():
    metrics = Metrics(process=False)
    metrics.submitted(3)
    metrics.submitted()
    scraped = metrics.render().decode()
    assert "leasehold_submissions_total 2.0" in scraped
    assert "leasehold_jobs_submitted_total 4.0" in scraped
"""

FORMAT: Final = Plugin(
    module="""
from traces.trace import ParsedTrace, TraceJob
from traces.files import Line
from traces.formats import TraceFormat


def parse(text, *, path):
    rows = enumerate(text.splitlines()[1:], 2)
    return ParsedTrace(jobs=[
        TraceJob(line=i, arrival_s=Line(path, i).number_in(row, "arrival"), duration_s=60.0,
              scale_factors=(1,))
        for i, row in rows
    ])


DASHES = TraceFormat(parse=parse, starts=lambda line: line == "---", shape="dashes")
""",
    proof="""
import contextlib
import json

import pytest

from leasehold.cli.main import main


@pytest.fixture
def leasehold(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["leasehold", *map(str, arguments)])
        with contextlib.suppress(SystemExit):
            main()
        return capsys.readouterr()

    return run


def test_every_command_reads_it(tmp_path, leasehold):
    file = tmp_path / "jobs.txt"
    file.write_text("---\\n5\\n9\\n")
    told = json.loads(
        leasehold("traces", "inspect", file, "--throughputs", "bundled", "--json").out
    )
    assert (told["format"], told["jobs"]) == ("dashes", 2)


def test_an_unknown_format_lists_it(tmp_path, leasehold):
    file = tmp_path / "jobs.txt"
    file.write_text("---\\n5\\n")
    said = leasehold("traces", "inspect", file, "--format", "slurm").err
    assert "known are gavel, shockwave, philly, msr-itp, csv, jsonl, dashes" in said
""",
)

BACKEND: Final = Plugin(
    module="""
import contextlib
from dataclasses import dataclass, replace

from agent.process.node import ProcessJobs


@dataclass(frozen=True, kw_only=True)
class Careful(ProcessJobs):
    word: str

    @contextlib.asynccontextmanager
    async def open(self, setup):
        async with super().open(setup) as jobs:
            yield replace(jobs, says=f"{self.word} care")


def careful(config, environment):
    return Careful(word=config.backend_options["word"])
""",
    proof="""
import asyncio
import logging
from dataclasses import replace

from leasehold.config.load import load_agent_config
from leasehold.daemon.agent import run_agent
from leasehold.daemon.agent_options import options_of
from scheduler.domain.lease_life import EndReason


def test_an_agent_runs_a_job_under_it(node, scheduler, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    file = tmp_path / "agent.toml"
    file.write_text(
        f'backend = "careful"\\nnode = "n1"\\nworkers = ["v100:1"]\\n'
        f'servers = ["{scheduler.address}"]\\n'
        f'state_dir = "{node.state_dir}"\\n[backend_options]\\nword = "great"\\n'
    )
    config = load_agent_config(path=str(file), environment={}).config
    told = replace(options_of(config, {}), token="lh_good")

    async def main():
        stop = asyncio.Event()
        scheduler.want(node.lease(1, "print('done')"))
        task = asyncio.create_task(run_agent(told, stop=stop))
        report = await node.until(lambda: scheduler.ended(1))
        stop.set()
        await task
        return report

    report = asyncio.run(asyncio.wait_for(main(), 50))
    assert report.reason is EndReason.COMPLETED
    assert "with great care" in caplog.text
""",
)
