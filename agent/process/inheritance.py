"""What a job's process does not inherit from the agent. Standard library only.

A process inherits more than its environment: limits, the kernel's score for lack of memory, signals
that are blocked or ignored, umask and niceness. Those of the agent suit the agent, and depend on
how it was started. So each is set here, as ``docs/reference/job-environment.md`` lists it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path
from typing import Final

#: The kernel ends a job for lack of memory before the services of the machine (0).
OOM_SCORE: Final = 200
UMASK: Final = 0o022
_ENDLESS: Final = resource.RLIM_INFINITY
#: Limit -> (soft, hard). A job may raise the soft one up to the hard one.
LIMITS: Final = {
    resource.RLIMIT_CORE: (0, _ENDLESS),  # a core of a training process fills the disk
    resource.RLIMIT_STACK: (8 << 20, _ENDLESS),
    resource.RLIMIT_MEMLOCK: (_ENDLESS, _ENDLESS),  # RDMA and pinned memory lock pages
    resource.RLIMIT_NOFILE: (65_536, 524_288),
    resource.RLIMIT_AS: (_ENDLESS, _ENDLESS),
    resource.RLIMIT_CPU: (_ENDLESS, _ENDLESS),
    resource.RLIMIT_DATA: (_ENDLESS, _ENDLESS),
    resource.RLIMIT_FSIZE: (_ENDLESS, _ENDLESS),
}
#: Processes and threads of a lease with a control group, and of a user of its own.
MOST_PROCESSES: Final = 32_768


def become_plain(*, own_user: bool) -> None:
    """Set all of that in a child that is about to become a process of a job.

    As far as the agent may: one that is not root cannot raise hard limits or priorities.

    Args:
        own_user: whether it is about to become a user that only jobs have.
    """
    for number in range(1, signal.NSIG):
        # SIGKILL, SIGSTOP and the signals of the C library cannot be set.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(UMASK)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    limits = LIMITS | ({resource.RLIMIT_NPROC: (MOST_PROCESSES,) * 2} if own_user else {})
    for limit, (soft, hard) in limits.items():
        _set_limit(limit, soft, hard)


def _set_limit(limit: int, soft: int, hard: int) -> None:
    """Set a limit; the agent's hard limit bounds both if it cannot be raised."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(limit, (soft, hard))
        return
    _, most = resource.getrlimit(limit)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(limit, (_less(soft, most), _less(hard, most)))


def _less(one: int, other: int) -> int:
    """Return the smaller of two limits; endless ones are -1."""
    if other == _ENDLESS:
        return one
    return other if one == _ENDLESS else min(one, other)
