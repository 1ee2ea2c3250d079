"""Several simulations at once, a process each.

Each run has a process of its own, not one of a pool. So a run that is killed (for example, out of
memory) takes no other run with it, and its memory is returned before the next one starts. These are
plain processes, not those of ``multiprocessing``, which run the caller's script again: a script
needs no ``if __name__ == "__main__"``, and a policy from a notebook or a script is sent whole.
"""

from __future__ import annotations

import dataclasses
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
from collections import ChainMap
from dataclasses import dataclass
from importlib.machinery import PathFinder
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from scheduler.errors import InputError, LeaseholdError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.progress import Progress
    from simulator.request import SimulationRequest
    from simulator.result import SimulationResult

#: Every run is one thread's work; libraries with a thread per core would slow each other down.
_ONE_THREAD: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
#: The program of a process; it imports with the same path as this one.
_PROGRAM: Final = """
import json, sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:] = json.loads(connection.recv_bytes())
from simulator.many.parallel import run_one
run_one(connection)
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunOutcome:
    """How a run ended.

    Attributes:
        request: the request.
        result: its result, or None if it failed.
        error: why it failed, one line; empty if it did not.
        bad_input: whether it failed because an input cannot be used.
    """

    request: SimulationRequest
    result: SimulationResult | None = None
    error: str = ""
    bad_input: bool = False


class RunListener(Protocol):
    """Receives the progress of runs, by their position in the list."""

    def started(self, index: int) -> None:
        """Handle the start of a run."""

    def progressed(self, index: int, progress: Progress) -> None:
        """Handle a run's progress."""

    def ended(self, index: int, outcome: RunOutcome) -> None:
        """Handle the end of a run."""


def process_count(wanted: int | None, runs: int) -> int:
    """Return how many processes to start for ``runs`` runs: by default one per core."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(wanted or cores, runs))


def run_all(
    requests: Sequence[SimulationRequest], *, processes: int, listener: RunListener
) -> list[RunOutcome]:
    """Run simulations, at most ``processes`` at a time.

    Returns:
        One outcome per request, in their order.

    Raises:
        ParameterError: a policy cannot be sent to a process.
    """
    messages = [_packed(request) for request in requests]
    outcomes: dict[int, RunOutcome] = {}
    running: dict[Connection, tuple[int, subprocess.Popen[bytes]]] = {}
    waiting = list(range(len(requests)))[::-1]
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                index = waiting.pop()
                connection, process = _start(messages[index])
                running[connection] = index, process
                listener.started(index)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                index, process = running[ready]
                message = _receive(ready, process)
                if not isinstance(message, tuple):
                    listener.progressed(index, message)
                    continue
                outcomes[index] = RunOutcome(
                    request=requests[index],
                    result=message[0],
                    error=message[1],
                    bad_input=message[2],
                )
                del running[ready]
                ready.close()
                process.wait()
                listener.ended(index, outcomes[index])
    finally:
        for connection, (_, process) in running.items():
            connection.close()
            process.kill()
            process.wait()
    return [outcomes[i] for i in range(len(requests))]


_End = tuple["SimulationResult | None", str, bool]


def _packed(request: SimulationRequest) -> bytes:
    """Return the request for a process; definitions of the caller's program go along whole."""
    import cloudpickle  # noqa: PLC0415 - only where processes are started

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it ships no types
        # Without this, a field without a default has one after the transfer: the mark is copied.
        dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
            {type(dataclasses.MISSING): lambda _: "MISSING"}, cloudpickle.Pickler.dispatch_table
        )

    file = io.BytesIO()
    module = sys.modules.get(type(request.policy).__module__)
    named = isinstance(request.policy, str)
    sent = not named and module is not None and not _is_found(module.__name__)
    try:
        if sent:
            cloudpickle.register_pickle_by_value(module)
        Pickler(file).dump(request)
    except Exception as error:
        raise ParameterError(
            f"policy '{request.label}' cannot be sent to a process of its own "
            f"({type(error).__name__}: {error}); keep what cannot be pickled out of it"
        ) from error
    finally:
        if sent:
            cloudpickle.unregister_pickle_by_value(module)
    return file.getvalue()


def _is_found(module: str) -> bool:
    """Return whether a new process with the same path finds a module."""
    package = module.partition(".")[0]
    return package == "__main__" or PathFinder.find_spec(package) is not None


_STDERR = 2


def _start(message: bytes) -> tuple[Connection, subprocess.Popen[bytes]]:
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        process = subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,  # the output of a policy is no part of a command's
            env={**dict.fromkeys(_ONE_THREAD, "1"), **os.environ},
        )
    try:
        ours.send_bytes(json.dumps(sys.path).encode())
        ours.send_bytes(message)
    except OSError:  # it died at once; reading from it shows how
        pass
    return ours, process


def _receive(connection: Connection, process: subprocess.Popen[bytes]) -> Progress | _End:
    try:
        message: Progress | _End = connection.recv()
    except (EOFError, OSError):
        code = process.wait()
        cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return None, f"the process ended without a result ({cause}; out of memory?)", False
    return message


def run_one(connection: Connection) -> None:
    """Simulate the request from the other end, and send the result; the process's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it and ends this process
    end: _End
    try:
        request: SimulationRequest = connection.recv()
        from simulator.run import simulate  # noqa: PLC0415 - failures here are reported, too

        end = simulate(request, connection.send), "", False
    except LeaseholdError as error:
        end = None, str(error), isinstance(error, InputError)
    except Exception as error:  # noqa: BLE001  a bug of one policy must not lose the others
        traceback.print_exc()
        end = None, f"{type(error).__name__}: {error}", False
    connection.send(end)
    connection.close()


def check_policies(requests: Sequence[SimulationRequest]) -> None:
    """Refuse policies that are unknown, malformed or listed twice, before anything runs.

    Raises:
        InputError: one is; the message names it.
    """
    labels = [request.label for request in requests]
    for label in labels:
        if labels.count(label) > 1:
            raise ParameterError(f"policy '{label}' is listed twice; name it once")
    for request in requests:
        request.make_policy()


def first_bad_input(outcomes: Sequence[RunOutcome]) -> str:
    """Return the message if all runs failed with the same one because of an input, or nothing."""
    errors = {outcome.error for outcome in outcomes if outcome.bad_input}
    every = all(outcome.bad_input for outcome in outcomes)
    return errors.pop() if every and len(errors) == 1 else ""
