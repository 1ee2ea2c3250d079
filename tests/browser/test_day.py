"""A user's day through the page alone, on a real installation: by mouse, and by keys alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from leasehold_testing.process import QUICK, Process, fresh, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Presses of Tab until any control of a page must have the focus.
MOST_TABS = 200
SWEEP = """
- {name: one, project: sweep, command: [sleep, "600"]}
- {name: two, project: sweep, command: [sleep, "600"]}
- {name: three, project: sweep, command: [sleep, "600"]}
"""


class Mouse:
    """Uses a page by pointing at things."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def follow(self, name: str) -> None:
        self._press(self.page.get_by_role("link", name=name, exact=True).first)

    def press(self, name: str, *, last: bool = False) -> None:
        buttons = self.page.get_by_role("button", name=name, exact=True)
        self._press(buttons.last if last else buttons.first)

    def fill(self, label: str, text: str) -> None:
        self._field(label).fill(text)

    def _press(self, place: Any) -> None:
        place.click()

    def _field(self, label: str) -> Any:
        named = self.page.get_by_role("textbox", name=label, exact=True)
        return self.page.get_by_label(label, exact=True).or_(named).first


class Keys(Mouse):
    """Uses a page without pointing."""

    def fill(self, label: str, text: str) -> None:
        self._reach(self._field(label))
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(text)

    def _press(self, place: Any) -> None:
        self._reach(place)
        self.page.keyboard.press("Enter")

    def _reach(self, place: Any) -> None:
        place.wait_for()
        for _ in range(MOST_TABS):
            if place.evaluate("one => one === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"no key leads to {place}")


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Process]:
    """A laptop that runs everything, with two workers."""
    options = (f"--state-dir={tmp_path / 'state'}", "--worker=v100:2", "--node=laptop")
    process = Process("up", *settings(QUICK), *options, env=fresh(tmp_path))
    yield process
    process.close()


@pytest.mark.parametrize("hands", [Mouse, pytest.param(Keys, marks=pytest.mark.long)])
def test_a_day_through_the_page_alone(
    chromium: Any, installation: Process, hands: type[Mouse]
) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.goto(installation.wait_for(r"http\S+/sign-in\?code=\S+")[0])
    page.get_by_text("There are no jobs yet").wait_for()
    me = hands(page)
    state = page.locator(".head .state")

    # Submit a job, and follow it.
    me.follow("Submit")
    me.fill("Name", "train")
    me.fill("Command", "bash -c 'while sleep 0.2; do echo epoch; done'")
    me.fill("Workers", "2")
    me.press("Submit")
    state.filter(has_text="running").wait_for()
    page.locator("pre[data-tail]").filter(has_text="epoch").first.wait_for()

    # Another one waits; the page says why.
    me.follow("Submit")
    me.fill("Name", "second")
    me.fill("Command", "sleep 600")
    me.fill("Workers", "2")
    me.press("Submit")
    state.filter(has_text="waiting").wait_for()
    page.get_by_text("Position 1 of 1 in the queue").wait_for()
    page.locator(".forecast").filter(has_text=re.compile("expected|unknown")).wait_for()

    # A sweep was a mistake.
    me.follow("Submit")
    me.fill("One job, or a list of jobs", SWEEP)
    me.press("Submit", last=True)
    page.get_by_role("heading", name="3 of 3 submitted").wait_for()
    me.follow("Jobs")
    me.fill("project", "sweep")
    me.press("Filter")
    me.follow("cancel")
    me.fill("Reason", "wrong data")
    me.press("Cancel 3 jobs")
    page.get_by_role("heading", name="3 of 3 jobs changed").wait_for()

    # A node gets a new disk.
    me.follow("Cluster")
    me.follow("drain")
    me.fill("Reason", "new disk")
    me.press("Drain node laptop")
    page.locator("#node-laptop .state").filter(has_text="drained").wait_for()
    me.follow("uncordon")
    me.press("Uncordon node laptop")
    page.locator("#node-laptop .state").filter(has_text="ready").wait_for()

    # First come, first served from now on.
    me.follow("Policies")
    me.follow("fifo")
    me.press("Try")
    page.locator(".result").wait_for()
    me.press("Put in force")
    page.get_by_role("heading", name="In force: fifo").wait_for()

    # The month's use, and what the history has kept.
    me.follow("Usage")
    page.locator("tr", has_text="default").filter(has_text=re.compile(r"\d")).first.wait_for()
    me.follow("Events")
    for text in ("wrong data", "new disk"):
        page.get_by_text(text).first.wait_for()
    context.close()
