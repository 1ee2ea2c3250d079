"""Take the pictures of the page in docs/images, of a real installation on this machine.

Starts ``leasehold up`` with declared workers of three types, submits jobs of three projects, waits
for some rounds, and looks at the views with Chromium. Compares the policies of README, and looks at
the report. Needs what ``make test-browser`` installs.

Usage: python tests/browser/screenshots.py [FOLDER]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

from leasehold_testing.browsing import OPTIONS, chromium_command
from leasehold_testing.process import QUICK, Process, fresh, settings

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SIZE = {"width": 1280, "height": 800}
WORKERS = ("a100:2", "v100:4", "k80:2")
#: Job type -> steps/s by worker type; the ratios are made up, and as unlike as real ones.
SPEEDS = {
    "resnet-50": {"a100": 9.0, "v100": 5.2, "k80": 1.1},
    "transformer": {"a100": 6.4, "v100": 2.5, "k80": 0.8},
    "recommender": {"a100": 3.1, "v100": 2.4, "k80": 1.6},
}
PROJECTS = ("vision", "speech", "ads")
#: Counts epochs for ever, and goes on from the last one.
PROGRAM = """
saved={home}/$LEASEHOLD_JOB_ID
i=$(cat $saved 2>/dev/null || echo 0)
while sleep 0.3; do
  i=$((i+1)); echo $i > $saved; echo "epoch $i: loss 0.$((900 - i % 800))"
done
"""
#: Picture -> what it shows: the first job that runs stands for {job}.
VIEWS = {
    "page-jobs": "/jobs",
    "page-job": "/jobs/{job}",
    "page-rounds": "/rounds?by=type&span=10m",
    "page-cluster": "/cluster",
    "page-fairness": "/fairness",
}
#: The comparison of README.
COMPARED = (
    *("compare", "bundled", "--throughputs", "bundled", "--cluster", "bundled"),
    *("--policies", "fifo,max_min_fairness+agnostic,max_min_fairness,max_min_fairness+packed"),
    *("--policies", "least_remaining_work+packed"),
)
REPORT_SIZE = {"width": 1340, "height": 952}
#: Time of the installation before the pictures.
WARM_S = 75.0


def jobs(home: Path) -> list[dict[str, Any]]:
    """Return the jobs of three projects."""
    program = PROGRAM.replace("{home}", str(home))
    made = []
    for index in range(14):
        kind = list(SPEEDS)[index % 3]
        made.append(
            {
                "name": f"{kind}-{index + 1}",
                "project": PROJECTS[index % len(PROJECTS)],
                "command": ["bash", "-c", program],
                "progress_regex": "epoch (?P<steps>[0-9]+)",
                "job_type": kind,
                "scale_factor": [2 if index % 5 == 4 else 1],
                "throughputs": SPEEDS[kind],
                "total_steps": 400,
                "weight": 2.0 if index == 3 else 1.0,
            }
        )
    return made


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    command = chromium_command()
    if command is None:
        print("screenshots: there is no Chromium here; install Debian's package", file=sys.stderr)
        return 1
    home = Path(tempfile.mkdtemp(prefix="lh-pictures-"))
    rounds = settings(QUICK | {"engine.round_length_s": "15"})
    workers = [f"--worker={one}" for one in WORKERS]
    up = Process("up", *rounds, *workers, f"--state-dir={home}", "--node=lab", env=fresh(home))
    try:
        link = up.wait_for(r"http\S+/sign-in\?code=\S+")[0]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=command, args=OPTIONS)
            page = browser.new_page(viewport=SIZE)
            page.goto(link)
            page.get_by_role("heading", name="Jobs").wait_for()
            job = fill(up.url, home)
            for name, path in VIEWS.items():
                page.goto(up.url + path.format(job=job))
                page.wait_for_timeout(3000)
                take(page, folder / f"{name}.png")
            show_comparison(page, up.url, home, folder)
            browser.close()
    finally:
        up.close()
        shutil.rmtree(home, ignore_errors=True)
    return 0


def take(page: Any, path: Path) -> None:
    """Take the picture of what is in the window."""
    page.screenshot(path=path)
    print(path)


def show_comparison(page: Any, url: str, home: Path, folder: Path) -> None:
    """Take the pictures of a report, and of its runs on the page."""
    out = home / "compared"
    command = [sys.executable, "-m", "leasehold.cli.main", *COMPARED, f"--out={out}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=fresh(home))
    page.goto(f"{url}/policies/-/compare")
    page.locator("#runs-files").set_input_files(out / "runs.json")
    page.get_by_label("Right").select_option("least_remaining_work+packed")
    slider = page.locator("#runs-at")
    slider.press("Home")
    for _ in range(160):
        slider.press("ArrowRight")
    take(page, folder / "page-compare.png")
    page.set_viewport_size(REPORT_SIZE)
    page.goto((out / "report.html").as_uri())
    page.wait_for_timeout(2000)
    take(page, folder / "report.png")


def fill(url: str, home: Path) -> str:
    """Submit the jobs and wait for some rounds; return one that runs."""
    token = (home / "admin.token").read_text().strip()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        client.post("/v1/jobs", json={"jobs": jobs(home)}).raise_for_status()
        time.sleep(WARM_S)
        running = client.get("/v1/jobs", params={"status": "running", "sort": "submitted"}).json()
    return str(running["jobs"][0]["job_id"])


if __name__ == "__main__":
    sys.exit(main())
