"""Chromium for tests of the page, the views, and jobs to look at."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from leasehold_testing.listening import Scheduler

#: Names of Chromium's command, and its options.
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
#: Every view; ``{job}`` is a job that runs.
VIEWS = (
    *("/jobs", "/jobs?group=owner", "/jobs/{job}", "/jobs/{job}/hold", "/jobs/{job}/change"),
    *("/jobs/{job}/output", "/jobs/{job}/output?q=loss", "/jobs/-/cancel", "/jobs/nothing"),
    *("/cluster", "/cluster/alpha/drain", "/events", "/rounds", "/fairness", "/words"),
    *("/usage", "/usage-figures?by=day", "/policies", "/policies/alpha_fairness"),
    "/policies/-/compare",
    *("/submit", "/submit?from={job}", "/admin/projects", "/admin/tokens", "/admin/nodes"),
    *("/admin/tokens/new", "/admin/projects/vision"),
)


def chromium_command() -> str | None:
    """Return Chromium's command; None if it is not installed."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def submit(scheduler: Scheduler, name: str, **fields: Any) -> str:
    """Submit a job, as the REST interface does."""
    body = {"name": name, "command": ["python", "train.py"]} | fields
    headers = {"Authorization": f"Bearer {scheduler.token('admin')}"}
    answer = httpx.post(f"{scheduler.url}/v1/jobs", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])
