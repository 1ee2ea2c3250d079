"""Signals: the first asks the daemon to stop, the second ends it at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger("leasehold.daemon")


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set ``stop`` at the first SIGTERM or SIGINT; end the process at the second.

    The second one ends it with exit code 128 plus the signal's number: 143 or 130.
    """
    loop = asyncio.get_running_loop()

    asked = False

    def take(number: signal.Signals) -> None:
        nonlocal asked
        if asked:
            _end_now(number)
        asked = True
        _log.info("%s: stopping; a second signal stops at once", number.name)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, take, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            if asked:  # the remaining work may take a while
                signal.signal(number, lambda number, _frame: _end_now(signal.Signals(number)))


def _end_now(number: signal.Signals) -> NoReturn:
    _log.warning("%s again: stopping at once", number.name)
    logging.shutdown()
    os._exit(128 + number)
