"""A scheduler with the real routes over a fake daemon, and Chromium to look at it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from api.auth.browser import COOKIE
from api.settings import ApiSettings
from leasehold_testing.browsing import OPTIONS, chromium_command
from leasehold_testing.listening import Scheduler
from leasehold_testing.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Milliseconds for anything to appear; a page follows changes within seconds.
PATIENCE_MS = 20_000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Add to what failed the text of all open pages, and what commands have printed."""
    try:
        return (yield)
    except Exception as error:
        for context in getattr(item.funcargs.get("chromium"), "contexts", []):
            for page in context.pages:
                with contextlib.suppress(Exception):  # a page that hangs must not hide the error
                    text = page.locator("body").inner_text(timeout=2000)
                    error.add_note(f"---- {page.url}\n{text[:4000]}")
        for process in item.funcargs.values():
            if isinstance(process, Process):
                error.add_note(f"---- {process.process.args}\n{process.output[-8000:]}")
        raise


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Return a running Chromium."""
    sync = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    command = chromium_command()
    if command is None:
        pytest.skip("there is no Chromium here")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=command, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """Return a scheduler that requires tokens."""
    found = Scheduler(settings=ApiSettings(token_check_s=0.5, token_cache_s=0.5))
    yield found
    found.stop()


@pytest.fixture
def look(chromium: Any, scheduler: Scheduler) -> Iterator[Callable[..., Any]]:
    """Return what opens a page as a role; whatever is wrong with any page fails the test."""
    contexts, wrong = [], []

    def listen(page: Any) -> None:
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: wrong.append(f"error {error}"))
        page.on("console", lambda line: line.type in {"error", "warning"} and note(line))
        page.on(
            "request", lambda sent: sent.url.startswith(scheduler.url) or wrong.append(sent.url)
        )
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))

    def note(line: Any) -> None:
        # Chromium and htmx tell of answers above 399 and of cut connections; tests look at those.
        if not line.text.startswith(("Failed to load resource", "htmx: htmx:error: Failed to")):
            wrong.append(f"console {line.text}")

    def opened(path: str = "/jobs", *, role: str = "admin", **options: Any) -> Any:
        context = chromium.new_context(**options)
        contexts.append(context)
        if role:
            cookie = {"name": COOKIE, "value": scheduler.token(role), "url": scheduler.url}
            context.add_cookies([cookie | {"httpOnly": True, "sameSite": "Strict"}])
        page = context.new_page()
        listen(page)
        page.goto(scheduler.url + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong
