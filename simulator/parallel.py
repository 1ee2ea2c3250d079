"""Several simulations at once, a process each.

A process per run and not a pool: a run that is killed (out of memory, say) then takes no other
with it, and its memory is returned before the next one starts.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Protocol

from scheduler.errors import InputError, LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import SpawnProcess

    from simulator.progress import Progress
    from simulator.request import SimulationRequest
    from simulator.result import SimulationResult

#: Every run is one thread's work; libraries that start a thread per core would only get in each
#: other's way.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunOutcome:
    """How a run ended.

    Attributes:
        request: what was asked.
        result: what it yielded, or None where it failed.
        error: why it failed, one line; empty where it did not.
        bad_input: whether it failed because an input cannot be used.
    """

    request: SimulationRequest
    result: SimulationResult | None = None
    error: str = ""
    bad_input: bool = False


class Listener(Protocol):
    """Is told how runs go, by their position in the list."""

    def started(self, index: int) -> None:
        """Take note that a run began."""

    def progressed(self, index: int, progress: Progress) -> None:
        """Take note of how far it is."""

    def ended(self, index: int, outcome: RunOutcome) -> None:
        """Take note of its end."""


def run_all(
    requests: Sequence[SimulationRequest], *, processes: int, listener: Listener
) -> list[RunOutcome]:
    """Run simulations, at most ``processes`` at a time.

    Returns:
        One outcome per request, in their order.
    """
    outcomes: dict[int, RunOutcome] = {}
    running: dict[Connection, tuple[int, SpawnProcess]] = {}
    waiting = list(enumerate(requests))[::-1]
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                index, request = waiting.pop()
                running.update([_start(index, request)])
                listener.started(index)
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                index, process = running[connection]
                message = _receive(connection, process)
                if not isinstance(message, tuple):
                    listener.progressed(index, message)
                    continue
                outcomes[index] = RunOutcome(
                    request=requests[index],
                    result=message[0],
                    error=message[1],
                    bad_input=message[2],
                )
                del running[connection]
                process.join()
                listener.ended(index, outcomes[index])
    finally:
        for _, process in running.values():
            process.terminate()
    return [outcomes[i] for i in range(len(requests))]


_End = tuple["SimulationResult | None", str, bool]


def _start(index: int, request: SimulationRequest) -> tuple[Connection, tuple[int, SpawnProcess]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(request, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, (index, process)


def _receive(connection: Connection, process: SpawnProcess) -> Progress | _End:
    try:
        message: Progress | _End = connection.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return None, f"the process ended without a result ({cause}; out of memory?)", False
    return message


def _run(request: SimulationRequest, connection: Connection) -> None:
    """Simulate in a process of its own and send what comes of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends us
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")
    end: _End
    try:
        from simulator.run import simulate  # noqa: PLC0415  after the threads are settled

        end = simulate(request, connection.send), "", False
    except LeaseholdError as error:
        end = None, str(error), isinstance(error, InputError)
    except Exception as error:  # noqa: BLE001  a bug of one policy must not lose the others
        traceback.print_exc()
        end = None, f"{type(error).__name__}: {error}", False
    connection.send(end)
    connection.close()


def first_bad_input(outcomes: Sequence[RunOutcome]) -> str:
    """Return the message that all runs failed with because of an input, or nothing."""
    errors = {outcome.error for outcome in outcomes if outcome.bad_input}
    every = all(outcome.bad_input for outcome in outcomes)
    return errors.pop() if every and len(errors) == 1 else ""
