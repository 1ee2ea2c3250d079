"""The tables of bounds match the program, and name tests that exist."""

import re
from pathlib import Path

import pytest

from agent.endpoint import endpoint, peers
from agent.logs.log_upload import UploadSettings
from agent.process import lease_files
from agent.process.inheritance import MOST_PROCESSES
from api import limits, routing
from api.edge import layers
from api.jobs import batches
from api.pages import output, sign_in, submit
from api.pages import routing as pages
from api.routes import jobs_submit
from api.schemas.jobs import MOST_JOBS
from api.settings import ApiSettings
from leasehold.config.settings import ServerSection
from leasehold.daemon import forecasts
from planner import catalogue
from planner.estimation import fitting
from planner.plans import document
from scheduler.control.nodes import reports
from scheduler.control.state import nodes, owners
from scheduler.domain.jobs import expressions
from scheduler.logs import logbook
from scheduler.runtime import execs
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.uploads import UploadLimits
from scheduler.webhooks import webhooks

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/who-trusts-whom.md"
KIB, MIB = 2**10, 2**20
REPORTS_KB = limits.NODE_REPORTS_KB
API, SERVER, UPLOADS = ApiSettings(), ServerSection(), UploadLimits()


def rows():
    """Return the cells of the tables' rows, by the first one."""
    section = PAGE.read_text().partition("\n## Bounds\n")[2].partition("\n## ")[0]
    cells = [line.strip("|").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return {row[0].strip(): [cell.strip() for cell in row] for row in cells}


@pytest.mark.parametrize(("row", "figures"), [
    ("bytes of a request", (API.max_body_bytes // MIB, layers.MOST_UNKNOWN_BYTES // KIB)),
    ("values in a request", (routing.MOST_VALUES,)),
    ("requests of a token", (SERVER.rate_per_s, SERVER.rate_burst)),
    ("requests of an address without a valid token",
     (SERVER.anonymous_rate_per_s, SERVER.anonymous_rate_burst)),
    ("wrong tokens at the sign-in of the page", (sign_in.TRIES.burst, 60 * sign_in.TRIES.per_s)),
    ("sign-ins at the identity provider", (sign_in.STARTS.burst, 60 * sign_in.TRIES.per_s)),
    ("searches in output", (output.SEARCHED_BYTES // MIB, output.MOST_FOUND)),
    ("jobs tried with a replay", (jobs_submit.TRIALS.burst,)),
    ("bytes of a form of the page", (pages.MOST_FORM_BYTES // MIB, pages.MOST_FIELDS)),
    ("characters of jobs in a form of the page", (submit.MOST_TEXT,)),
    ("policies tried at once", (1, forecasts.TRIAL_S)),
    ("streams and readers of output", (API.max_streams,)),
    ("bytes of output in memory of a reader that takes nothing", (logbook.PIECE_BYTES // KIB,)),
    ("jobs in one submission", (API.max_batch,)),
    ("jobs in one submission", (MOST_JOBS,)),
    ("an expression for progress", (expressions.MOST_REPETITIONS,)),
    ("models of jobs", (document.LONGEST, document.MOST_LAYERS, batches.MOST_MODELS,
                        catalogue.MOST_MODELS)),
    ("worker types in a job's throughputs", (fitting.MOST_ROWS, fitting.MOST_COLUMNS)),
    ("projects in which a user gets uids", (owners.MOST_PROJECTS,)),
    ("uploaded code", (UPLOADS.max_bytes // MIB, UPLOADS.max_project_bytes // MIB,
                       UPLOADS.max_total_bytes // 2**30)),
    ("webhooks", (webhooks.MOST_OF_ONE, webhooks.MOST)),
    ("commands beside jobs", (execs.MOST_OF_JOB, execs.MOST_OF_USER, execs.MOST,
                              execs.MOST_OUTPUT // MIB)),
    ("connections to the agent that name no lease", (peers.MOST_STRANGERS,)),
    ("connections to the agent", (peers.MOST_CONNECTIONS,)),
    ("lines to the agent", (endpoint.LEASE_LINES_PER_S, endpoint.STRANGER_LINES_PER_S,
                            endpoint.MOST_REFUSED)),
    ("bytes of `progress.json`", (lease_files.SMALL_BYTES,)),
    ("output to the scheduler", (UploadSettings().bytes_per_s / 1e6,)),
    ("output at the scheduler", (RuntimeSettings().log_bytes // MIB,)),
    ("processes and threads", (MOST_PROCESSES,)),
    ("requests", (limits.NODE_REQUESTS.per_s, limits.NODE_REQUESTS.burst)),
    ("bytes of reports", (REPORTS_KB.per_s / 1000, REPORTS_KB.burst / 1000)),
    ("changes of its workers", (nodes.MOST_CHANGES,)),
    ("stalls of its agent", (reports.MOST_STALLS,)),
    ("new worker types of the cluster", (reports.MOST_TYPES,)),
])  # fmt: skip
def test_a_bound_on_the_page_is_the_programs(row, figures):
    told = [float(text.replace(",", "")) for text in re.findall(r"[\d,]*\d", rows()[row][1])]
    assert told[: len(figures)] == [float(figure) for figure in figures]


def test_each_bound_has_a_test_that_exists():
    for name, cells in rows().items():
        if name.startswith(("amount", "---")):
            continue
        tests = re.findall(r"`(tests/[^`]+)::(\w+)`", cells[3])
        assert tests, name
        for path, test in tests:
            assert re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.MULTILINE), (
                test
            )
