"""Tables that are redrawn while a user watches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leasehold.cli.display.output import console, print_json_line, print_remark
from scheduler.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from leasehold.cli.session.client import ServiceClient

T = TypeVar("T")
#: Seconds between two frames.
EVERY_S: Final = 2.0


def show_live(
    service: ServiceClient,
    *,
    read: Callable[[], Any],
    draw: Callable[[Any], RenderableType],
    as_json: bool,
    every_s: float = EVERY_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show frames until Ctrl-C; while the scheduler is away, the last frame stays.

    Args:
        service: the scheduler to show.
        read: asks the scheduler.
        draw: makes a frame from the result of ``read``.
        as_json: print one JSON document per line and frame instead.
        every_s: seconds between two frames.
        sleep: waits so many seconds.
    """
    if as_json:
        _print_frames(service, read, every_s, sleep)
    from rich.console import Group  # noqa: PLC0415  0.1 s to import
    from rich.live import Live  # noqa: PLC0415 - keeps the start quick
    from rich.text import Text  # noqa: PLC0415 - keeps the start quick

    frame = draw(read())
    # An alternate screen if the terminal has one: its previous content comes back.
    shown = console()
    with Live(
        frame, console=shown, screen=shown.is_terminal, auto_refresh=False, transient=False
    ) as live:
        live.refresh()
        while True:
            sleep(every_s)
            try:
                frame = draw(read())
                live.update(frame, refresh=True)
            except UnreachableError as error:
                live.update(Group(Text(f"{error}; trying again", style="red"), frame), refresh=True)


def _print_frames(
    service: ServiceClient,
    read: Callable[[], Any],
    every_s: float,
    sleep: Callable[[float], None],
) -> None:
    print_json_line(read())
    failures = 0
    while True:
        sleep(every_s)
        try:
            print_json_line(read())
            failures = 0
        except UnreachableError as error:
            failures += 1
            if failures == 1:
                print_remark(f"{error}; trying again until it is back (Ctrl-C ends)")
            service.pause(failures)
