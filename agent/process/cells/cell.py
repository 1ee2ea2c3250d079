"""The namespaces of one lease, held open by bubblewrap, and the processes in them.

For the supervisor, hence the standard library only. Bubblewrap makes the namespaces (mounts,
processes, System V memory) and stays in them as their first process; when it dies, everything in
them dies. The job's processes join one by one, as children of the supervisor, so that it signals
and reaps them as it does without a cell. They run as the owner's user, in no other groups than its
own and those that the node gives to all jobs, and can gain no privileges.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import shlex
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.process.cells.system_calls import refuse_calls

if TYPE_CHECKING:
    from collections.abc import Callable

#: How long bubblewrap may take; an automounted folder may keep it waiting.
OPEN_MOST_S: Final = 60.0
#: The number of entries of a checkpoint folder that are checked for the job's read access.
LOOKED_AT: Final = 256

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
#: Namespaces that the process itself joins; only children can be in that of processes.
_JOINED = ("ipc", "mnt")
#: Prints a line once everything is mounted, then sleeps.
_KEEPER = ("/bin/sh", "-c", "echo ready; exec sleep infinity")


@dataclass(kw_only=True)
class Cell:
    """One lease's namespaces.

    Attributes:
        command: of bubblewrap, without the program to run.
        uid: user and group of the job.
        groups: further groups.
        whose: the owner, as text.
        namespaces: whether the job may make user namespaces.
        calls_refused: whether the system calls of ``system_calls`` are refused to it.
    """

    command: list[str]
    uid: int
    groups: list[int]
    whose: str
    namespaces: bool = True
    calls_refused: bool = False
    _keeper: subprocess.Popen[bytes] | None = None
    _spaces: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, told: dict[str, Any]) -> Cell:
        """Return the cell of ``launch.json``; see ``confinement``."""
        return cls(
            command=told["command"],
            uid=told["uid"],
            groups=told["groups"],
            whose=told["whose"],
            # An agent of the release before wrote neither.
            namespaces=told.get("namespaces", True),
            calls_refused=told.get("calls_refused", False),
        )

    def open(self, prepare: Callable[[], None]) -> str:
        """Make the namespaces; return what went wrong, else an empty text.

        Args:
            prepare: run in the child before bubblewrap.
        """
        reading, writing = os.pipe()
        command = [self.command[0], "--info-fd", str(writing), *self.command[1:]]
        try:
            self._keeper = subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--", *_KEEPER],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(writing,),
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - nothing else forks here meanwhile
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(reading)
            return f"cannot start {command[0]}: {getattr(error, 'strerror', None) or error}"
        finally:
            os.close(writing)
        self._keeper.returncode = 0  # the reaper of all children collects it
        with open(reading, "rb") as info:  # noqa: PTH123 - of a descriptor
            if not _comes(self._keeper, OPEN_MOST_S):
                return f"{command[0]} made no namespaces: {_said(self._keeper)}"
            first = json.loads(info.read())["child-pid"]
        self.find(first)
        return ""

    def find(self, process: int) -> None:
        """Find the namespaces by one of the processes in them, after ``open`` has made them.

        Raises:
            OSError: it has ended.
        """
        for name in ("pid", *_JOINED):
            self._spaces[name] = os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)

    @contextlib.contextmanager
    def bearing(self) -> Any:
        """Make children that are started within processes of the cell."""
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _join(self._spaces["pid"])
            yield
        finally:
            _join(own)
            os.close(own)

    def enter(self, folder: str) -> None:
        """Become a process of the job; in a child that was started within ``bearing``.

        Raises:
            OSError: the kernel refuses, or the folder cannot be entered.
        """
        for name in _JOINED:
            _join(self._spaces[name])
        os.setgroups(self.groups)
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has undone it
        if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
        if self.calls_refused:
            refuse_calls(namespaces=self.namespaces)
        os.chdir(folder)

    def look(self, folder: str, checkpoints: str | None) -> str:
        """Return why the job could not work in its folders; empty if it can.

        Args:
            folder: its working directory.
            checkpoints: its checkpoint folder; created if the folder above it exists.
        """
        reading, writing = os.pipe()
        with self.bearing():
            pid = os.fork()
            if pid == 0:
                said = "the job's folders could not be checked"
                try:
                    self.enter("/")
                    said = self._fault(folder, checkpoints)
                except OSError as error:
                    said = f"{said}: {error.strerror}"
                finally:
                    os.write(writing, said.encode(errors="replace")[:4000])
                    os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:  # noqa: PTH123 - of a descriptor
            text = pipe.read().decode(errors="replace")
        os.waitpid(pid, 0)
        return text

    def _fault(self, folder: str, checkpoints: str | None) -> str:
        try:
            os.chdir(folder)
        except FileNotFoundError:
            return f"working_dir {folder} is not there; name a folder of the node (-C)"
        except OSError as error:
            return f"working_dir {self._in_words(Path(folder), error.strerror)}"
        return "" if checkpoints is None else self._fault_of_checkpoints(Path(checkpoints))

    def _fault_of_checkpoints(self, path: Path) -> str:
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError:
            return ""  # the folder above it is missing too; the job may handle that
        except OSError as error:
            return (
                f"checkpoint_dir {path} cannot be made by uid {self.uid}, as which jobs of "
                f"{self.whose} run: {error.strerror}; make it, and `chown {self.uid}:{self.uid} "
                f"{shlex.quote(str(path))}`"
            )
        why = "" if os.access(path, os.R_OK | os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
        if not why:
            with os.scandir(path) as entries:
                for _, entry in zip(range(LOOKED_AT), entries, strict=False):
                    if not entry.is_symlink() and not os.access(entry.path, os.R_OK):
                        why = f"{entry.name} in it cannot be read"
        return f"checkpoint_dir {self._in_words(path, why)}" if why else ""

    def _in_words(self, path: Path, why: str | None) -> str:
        whose = ""
        with contextlib.suppress(OSError):
            whose = f", which belongs to uid {path.stat().st_uid},"
        return (
            f"{path}{whose} cannot be used by uid {self.uid}, as which jobs of {self.whose} run: "
            f"{why}; `chown -R {self.uid}:{self.uid} {shlex.quote(str(path))}` gives it to them"
        )


def _join(space: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(space, 0):
        raise OSError(ctypes.get_errno(), "setns")


def _comes(keeper: subprocess.Popen[bytes], most_s: float) -> bool:
    """Wait until the keeper prints that it is ready."""
    assert keeper.stdout is not None
    ready, _, _ = select.select([keeper.stdout], [], [], most_s)
    return bool(ready) and os.read(keeper.stdout.fileno(), 16).startswith(b"ready")


def _said(keeper: subprocess.Popen[bytes]) -> str:
    assert keeper.stderr is not None
    os.set_blocking(keeper.stderr.fileno(), False)
    said = (keeper.stderr.read(2000) or b"").decode(errors="replace").strip()
    return said or f"it gave no answer within {OPEN_MOST_S:g} s"
