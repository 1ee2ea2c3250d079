"""Solving without stopping the daemon: policies run in processes of their own, with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.domain.answers import Failure, Question, TableOnce
from scheduler.errors import SolveError, SupersededError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.domain.answers import PolicyKey, Solved
    from scheduler.domain.problem import Problem

#: A new process imports numpy, scipy and the policy, on a loaded machine slowly.
_START_LIMIT_S = 120.0

_log = logging.getLogger("leasehold.solver")


class Answerer(Protocol):
    """Knows policies by name; pickle sends it to another process."""

    def answer(self, key: PolicyKey, problem: Problem) -> Solved:
        """Ask a policy.

        Raises:
            SolveError: there is no such policy, it raised something, or its answer does not fit.
        """
        ...

    def warm(self, key: PolicyKey) -> Solved:
        """Load a policy and its solvers.

        Raises:
            SolveError: as ``answer``.
        """
        ...

    def time_dependent(self, name: str, parameters: Mapping[str, str]) -> bool:
        """Return whether a policy's answers change as time passes.

        Raises:
            UnknownPolicyError: no policy has that name.
            ParameterError: a parameter is unknown or wrong.
        """
        ...

    def serve(self, connection: Connection) -> None:
        """Answer ``Question`` by ``Solved`` or ``Failure`` until the connection closes."""
        ...


class Solver(Protocol):
    """Answers the engine's questions."""

    def time_dependent(self, policy: PolicyChoice) -> bool:
        """Return whether a policy's answers change as time passes; see ``Answerer``."""
        ...

    async def warm(self, policy: PolicyChoice) -> None:
        """Load a policy and its solvers, so that the first real question is answered quickly.

        Raises:
            SolveError: the policy cannot be used.
        """
        ...

    async def solve(self, policy: PolicyChoice, problem: Problem) -> Solved:
        """Answer a problem.

        A cancelled call drops the answer; it is still computed.

        Raises:
            SupersededError: a newer question came while this one waited.
            SolveError: the policy raised something, took longer than the deadline, or died.
        """
        ...

    async def close(self) -> None:
        """Stop at once; questions that are open end with ``SolveError``."""
        ...


class SolverPool:
    """Answers in other processes, by default one question at a time.

    While all processes are busy one question may wait; a newer one replaces it. A process that
    misses the deadline or dies is replaced.

    Args:
        answerer: answers in these processes.
        workers: processes, and so the questions that are answered at the same time.
        deadline_s: seconds for an answer, without the wait for a process.
    """

    def __init__(self, answerer: Answerer, *, workers: int = 1, deadline_s: float = 60.0) -> None:
        self._answerer = answerer
        self._deadline_s = deadline_s
        self._seats = [_Seat(answerer) for _ in range(workers)]
        self._idle = list(self._seats)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="solver")
        self._waiting: asyncio.Future[_Seat] | None = None
        self._closed = False

    def time_dependent(self, policy: PolicyChoice) -> bool:
        """Ask the answerer."""
        return self._answerer.time_dependent(policy.name, policy.parameters)

    async def warm(self, policy: PolicyChoice) -> None:
        """Start every process and load a policy in it."""
        idle, self._idle = self._idle, []
        question = Question(policy=policy_key(policy), problem=None)
        await asyncio.gather(*(self._ask(seat, question, _START_LIMIT_S) for seat in idle))

    async def solve(self, policy: PolicyChoice, problem: Problem) -> Solved:
        """Answer a problem."""
        question = Question(policy=policy_key(policy), problem=problem)
        return await self._ask(await self._take_seat(), question, self._deadline_s)

    async def close(self) -> None:
        """Kill the processes."""
        self._closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(SolveError("the scheduler is stopping"))
        for seat in self._seats:
            seat.close()
        await asyncio.to_thread(self._threads.shutdown)

    async def _take_seat(self) -> _Seat:
        if self._closed:
            raise SolveError("the scheduler is stopping")
        if self._idle:
            return self._idle.pop()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(SupersededError("a newer question has been asked"))
        waiting: asyncio.Future[_Seat] = asyncio.get_running_loop().create_future()
        self._waiting = waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._leave_seat(waiting.result())
            raise

    def _leave_seat(self, seat: _Seat) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(seat)
        else:
            self._idle.append(seat)

    async def _ask(self, seat: _Seat, question: Question, deadline_s: float) -> Solved:
        asked = asyncio.get_running_loop().run_in_executor(
            self._threads, seat.ask, question, deadline_s
        )
        asked.add_done_callback(lambda done: self._asked(seat, done))
        reply = await asyncio.shield(asked)
        if isinstance(reply, Failure):
            raise SolveError(reply.reason)
        return reply

    def _asked(self, seat: _Seat, done: asyncio.Future[Solved | Failure]) -> None:
        if not done.cancelled():
            done.exception()  # a caller that was cancelled does not fetch it
        self._leave_seat(seat)


class _Seat:
    """One process and the connection to it. Only ``close`` may run beside another thread's call."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._context = multiprocessing.get_context("spawn")
        self._process: SpawnProcess | None = None
        self._line: Connection | None = None
        self._tables = TableOnce()
        #: whether the process has reported that it listens
        self._ready = False
        self._closed = False

    def ask(self, question: Question, deadline_s: float) -> Solved | Failure:
        """Send a question and wait for the reply.

        Raises:
            SolveError: the process died or was too late; a new one is starting.
        """
        name = question.policy[0]
        if self._line is None or self._process is None or not self._process.is_alive():
            self._start()
        begin = time.monotonic()
        try:
            self._wait_until_ready()
            return self._exchange(question, deadline_s)
        except TimeoutError:
            self._replace()
            raise SolveError(
                f"policy '{name}' did not answer within {deadline_s:g} s and was stopped; raise "
                "solver.deadline_s or choose a quicker policy"
            ) from None
        except (EOFError, OSError) as error:
            code = self._exit_code()
            if self._closed:
                raise SolveError("the scheduler is stopping") from error
            self._replace()
            raise SolveError(
                f"the process that solved for policy '{name}' ended with {code} after "
                f"{time.monotonic() - begin:.1f} s; a signal 9 is often a lack of memory"
            ) from error

    def close(self) -> None:
        """Kill the process."""
        self._closed = True
        self._kill()

    def _wait_until_ready(self) -> None:
        """Wait for a new process to finish its imports; they do not count as the policy's time."""
        if not self._ready:
            self._receive(_START_LIMIT_S)
            self._ready = True

    def _exchange(self, question: Question, deadline_s: float) -> Solved | Failure:
        line, process = self._line, self._process
        if line is None or process is None:
            raise EOFError
        # If a process does not read, ``send`` waits forever once the pipe is full. If it stops
        # within an answer, ``recv`` does. The death of the process ends both.
        late = threading.Event()

        def end_it() -> None:
            late.set()
            process.kill()

        deadline = threading.Timer(deadline_s, end_it)
        deadline.daemon = True
        deadline.start()
        try:
            line.send(self._tables.packed(question))
            reply: Solved | Failure = self._receive(deadline_s)
        except (EOFError, OSError) as error:
            if late.is_set():
                raise TimeoutError from error
            raise
        finally:
            deadline.cancel()
        return reply

    def _receive(self, within_s: float) -> Any:
        if self._line is None:
            raise EOFError
        if not self._line.poll(within_s):
            raise TimeoutError
        return self._line.recv()

    def _start(self) -> None:
        if self._is_closed():
            raise SolveError("the scheduler is stopping")
        self._kill()
        ours, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=self._answerer.serve, args=(theirs,), name="leasehold-solver", daemon=True
        )
        self._process.start()
        theirs.close()
        self._line, self._tables = ours, TableOnce()
        self._ready = False
        if self._is_closed():  # closed meanwhile
            self._kill()
        _log.debug("solver process %d starts", self._process.pid)

    def _replace(self) -> None:
        """Start the next process now, so that its imports are done before the next question."""
        with contextlib.suppress(SolveError, OSError):
            self._start()

    def _is_closed(self) -> bool:
        return self._closed  # another thread sets it

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            process.kill()
            process.join()
        # The line stays open until the next start: another thread may be waiting on it, and the
        # end of the process ends that wait.

    def _exit_code(self) -> str:
        process = self._process
        if process is None:
            return "no exit code"
        process.join(1.0)
        code = process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def policy_key(policy: PolicyChoice) -> PolicyKey:
    """Return the name and parameters of a policy as processes exchange them."""
    return policy.name, tuple(sorted(policy.parameters.items()))
