"""The system calls that confined jobs must not make, as a filter of the kernel (seccomp).

For the supervisor, hence the standard library only. Any user may make these calls, and faults in
the kernel are found behind them again and again. Training needs none of them, and container
runtimes refuse them by default. Capabilities guard the others, and jobs have none. A job would gain
them in a user namespace of its own, so it may make none, unless an operator allows it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Refused as if the kernel did not have them, so that programs do without.
_MISSING: Final = ("add_key", "request_key", "keyctl")
_CLONE_NEWUSER: Final = 0x10000000
#: Numbers from here on are of the x32 interface of x86-64, in which calls have other numbers.
_X32: Final = 0x40000000
#: Of ``seccomp(2)``. Without the flag, kernels before 5.16 slow down the processes of the job.
_SET_FILTER, _KEEP_SPECULATION = 1, 4
#: Instructions of the filter: load a word, jump if equal, at least, or if a bit is set, return.
_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: Places in the data of a call: its number, the interface, and the low half of its first argument.
_NUMBER, _INTERFACE, _FIRST = 0, 4, 16
#: The answers of the filter: allow the call, or fail with an error number.
_ERROR: Final = 0x00050000
_ANSWERS: Final = {
    "allow": 0x7FFF0000,
    "refused": _ERROR | errno.EPERM,
    "missing": _ERROR | errno.ENOSYS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The calls of one kind of machine.

    Attributes:
        interface: the kernel's number of the machine's interface (``AUDIT_ARCH``).
        seccomp: number of ``seccomp``.
        clone: number of ``clone``.
        unshare: number of ``unshare``.
        refused: name of a refused call -> its number.
    """

    interface: int
    seccomp: int
    clone: int
    unshare: int
    refused: Mapping[str, int]


#: On all machines alike.
_CLONE3: Final = 435
_RINGS: Final = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}
#: Machine, as ``uname`` names it -> its calls. On another one nothing is refused.
MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(
        interface=0xC000003E,
        seccomp=317,
        clone=56,
        unshare=272,
        refused={
            "modify_ldt": 154,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "perf_event_open": 298,
            "fanotify_init": 300,
            "open_by_handle_at": 304,
            "bpf": 321,
            "userfaultfd": 323,
            **_RINGS,
        },
    ),
    "aarch64": Machine(
        interface=0xC00000B7,
        seccomp=277,
        clone=220,
        unshare=97,
        refused={
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "perf_event_open": 241,
            "fanotify_init": 262,
            "open_by_handle_at": 265,
            "bpf": 280,
            "userfaultfd": 282,
            **_RINGS,
        },
    ),
}


class _Program(ctypes.Structure):
    """The kernel's ``sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def find_obstacle() -> str:
    """Return why calls cannot be refused here; empty if they can."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return f"no list of calls for machines of kind {platform.machine()}"
    number = _seccomp(machine, None)
    # Without a filter to read it fails there, if the operation and the flag are known.
    if number == errno.EFAULT:
        return ""
    return f"the kernel accepts no seccomp filter ({os.strerror(number)}); it needs Linux 4.17"


def build_filter(machine: Machine, *, namespaces: bool) -> bytes:
    """Return the filter as instructions for the kernel.

    Args:
        machine: whose calls these are.
        namespaces: whether a job may make user namespaces.
    """
    #: Instruction, its value, and the next place if it is true and if it is not; "" is next to it.
    lines: list[tuple[int, int, str, str]] = [
        (_LOAD, _INTERFACE, "", ""),
        (_EQUAL, machine.interface, "", "missing"),
        (_LOAD, _NUMBER, "", ""),
        (_AT_LEAST, _X32, "missing", ""),
    ]
    for name, number in machine.refused.items():
        lines.append((_EQUAL, number, "missing" if name in _MISSING else "refused", ""))
    if not namespaces:
        # The flags of clone3 lie in memory, which a filter cannot read; C libraries then use clone.
        lines.append((_EQUAL, _CLONE3, "missing", ""))
        lines += [(_EQUAL, number, "flags", "") for number in (machine.clone, machine.unshare)]
    lines.append((_AT_LEAST, 0, "allow", ""))
    places = {"flags": len(lines)}
    lines += [(_LOAD, _FIRST, "", ""), (_HAS_BIT, _CLONE_NEWUSER, "refused", "allow")]
    for name, value in _ANSWERS.items():
        places[name] = len(lines)
        lines.append((_RETURN, value, "", ""))
    packed = []
    for i, (kind, value, *aims) in enumerate(lines):
        true, false = (places[aim] - i - 1 if aim else 0 for aim in aims)
        packed.append(struct.pack("=HBBI", kind, true, false, value))
    return b"".join(packed)


def refuse_calls(*, namespaces: bool) -> None:
    """Refuse the calls to this process and its children, for good.

    The process must not be able to gain privileges (``PR_SET_NO_NEW_PRIVS``).

    Args:
        namespaces: whether it may make user namespaces.

    Raises:
        OSError: the kernel refuses the filter.
    """
    machine = MACHINES[platform.machine()]
    if number := _seccomp(machine, build_filter(machine, namespaces=namespaces)):
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _seccomp(machine: Machine, code: bytes | None) -> int:
    """Install a filter; return the error number, or 0."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    program = None if code is None else ctypes.byref(_Program(len(code) // 8, code))
    failed = call(machine.seccomp, _SET_FILTER, _KEEP_SPECULATION, program)
    return ctypes.get_errno() if failed else 0
