"""Every view in three widths, light and dark, as each role; pictures of all are in build/looks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from leasehold_testing.browsing import VIEWS, submit

LOOKS = Path(__file__).resolve().parents[2] / "build" / "looks"
#: A telephone, a laptop, a wall.
WIDTHS = {375: 700, 1280: 800, 3840: 2160}
ROLES = ("viewer", "user", "operator", "admin")


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_each_view_fits_and_is_told_apart(
    look: Any, scheduler: Any, width: int, scheme: str, role: str
) -> None:
    running = submit(scheduler, "train", labels={"team": "vision"})
    scheduler.do(scheduler.service.run, running)
    for index in range(30):
        submit(scheduler, f"sweep-{index}", project="speech", held=index % 7 == 0)
    folder = LOOKS / f"{width}-{scheme}-{role}"
    folder.mkdir(parents=True, exist_ok=True)
    size = {"width": width, "height": WIDTHS[width]}
    page = look("/jobs", role=role, viewport=size, color_scheme=scheme)
    for path in VIEWS:
        page.goto(scheduler.url + path.format(job=running))
        page.locator("h1").first.wait_for()
        name = re.sub(r"\W+", "-", path.format(job="job")).strip("-")
        page.screenshot(path=folder / f"{name}.png", full_page=True)
        over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert over <= 0, f"{path} is {over} pixels too wide"
        small = page.evaluate(SMALLEST)
        assert small >= 11, f"{path} has text of {small} pixels"


#: The size of the smallest text, in pixels.
SMALLEST = """() => Math.min(...[...document.querySelectorAll("main *")]
  .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .map((one) => parseFloat(getComputedStyle(one).fontSize)))"""
