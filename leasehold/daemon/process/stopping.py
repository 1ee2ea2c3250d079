"""Signals: the first asks the daemon to stop, the second ends it at once.

SIGHUP counts as SIGTERM: a terminal that is closed sends it. Under ``nohup`` it stays ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("leasehold.daemon")


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that ask this process to stop."""
    always = (signal.SIGTERM, signal.SIGINT)
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return always if ignored else (*always, signal.SIGHUP)


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set ``stop`` at the first signal that asks to stop; end the process at the second.

    The second one ends it with exit code 128 plus the signal's number, such as 143 or 130.
    """
    loop, signals = asyncio.get_running_loop(), stop_signals()
    asked = False

    def take(number: signal.Signals) -> None:
        nonlocal asked
        if asked:
            _end_now(number)
        asked = True
        _log.info("%s: stopping; a second signal stops at once", number.name)
        stop.set()

    for number in signals:
        loop.add_signal_handler(number, take, number)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
            if asked:  # the remaining work may take a while
                signal.signal(number, lambda number, _frame: _end_now(signal.Signals(number)))


def _end_now(number: signal.Signals) -> NoReturn:
    _log.warning("%s again: stopping at once", number.name)
    logging.shutdown()
    os._exit(128 + number)
