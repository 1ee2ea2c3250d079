"""The filter of confined jobs' system calls: its decisions, and what the kernel does with it."""

from __future__ import annotations

import errno
import os
import platform
import struct
import subprocess
import sys

import pytest

from agent.process.cells import system_calls
from agent.process.cells.system_calls import MACHINES, build_filter, find_obstacle
from leasehold_testing import ON_PATH

NEWUSER, NEWNET, THREAD = 0x10000000, 0x40000000, 0x00010000
CLONE3, READ = 435, {"x86_64": 0, "aarch64": 63}
ALLOWED, REFUSED, MISSING = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def answer(code: bytes, number: int, *, interface: int, first: int = 0) -> int:
    """Return a filter's answer to a call, as the kernel's machine for filters computes it."""
    data = struct.pack("=IIQQ", number, interface, 0, first)
    lines = list(struct.iter_unpack("=HBBI", code))
    at = word = 0
    while True:
        kind, true, false, value = lines[at]
        at += 1
        if kind == 0x20:
            (word,) = struct.unpack_from("=I", data, value)
        elif kind == 0x06:
            return value
        else:
            holds = {0x15: word == value, 0x35: word >= value, 0x45: bool(word & value)}[kind]
            at += true if holds else false


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("namespaces", [False, True])
def test_the_filter_refuses_what_it_lists_and_nothing_else(name, namespaces):
    machine = MACHINES[name]
    code = build_filter(machine, namespaces=namespaces)

    def ask(number, first=0, interface=machine.interface):
        return answer(code, number, interface=interface, first=first)

    refused = {call: ask(number) for call, number in machine.refused.items()}
    keys = dict.fromkeys(("add_key", "request_key", "keyctl"), MISSING)
    assert refused == dict.fromkeys(machine.refused, REFUSED) | keys
    for call in (machine.clone, machine.unshare):
        assert ask(call, NEWUSER | NEWNET) == (ALLOWED if namespaces else REFUSED)
        assert ask(call, THREAD) == ask(call, NEWNET) == ALLOWED
    assert ask(CLONE3) == (ALLOWED if namespaces else MISSING)
    listed = {*machine.refused.values(), machine.clone, machine.unshare, CLONE3}
    assert READ[name] not in listed
    assert {ask(number, NEWUSER) for number in range(500) if number not in listed} == {ALLOWED}
    assert ask(READ[name], interface=0x40000003) == MISSING, "a program of 32 bits"
    assert ask(0x40000000 + READ[name]) == MISSING, "the x32 interface"


def test_only_a_machine_without_filters_or_a_list_is_let_off(monkeypatch):
    assert find_obstacle() == ""
    monkeypatch.setattr(system_calls, "_seccomp", lambda *_: errno.EINVAL)
    assert "needs Linux 4.17" in find_obstacle()
    monkeypatch.setattr(system_calls.platform, "machine", lambda: "ppc64le")
    assert find_obstacle() == "no list of calls for machines of kind ppc64le"


#: Prints by call the name of the error, as a user without rights.
CALLS = """
import ctypes, errno, os, sys
from agent.process.cells import system_calls
libc = ctypes.CDLL(None, use_errno=True)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
libc.prctl(38, 1, 0, 0, 0)
if sys.argv[1] != "none":
    system_calls.refuse_calls(namespaces=sys.argv[1] == "namespaces")
machine = system_calls.MACHINES[system_calls.platform.machine()]
for name, number in {**machine.refused, "unshare": machine.unshare, "clone3": 435}.items():
    failed = libc.syscall(number, 0x10000000 if name == "unshare" else 0, 0, 0, 0, 0)
    print(name, errno.errorcode[ctypes.get_errno()] if failed == -1 else "none")
"""


def made_calls(mode: str) -> dict[str, str]:
    ran = subprocess.run(
        [sys.executable, "-c", ON_PATH + CALLS, mode], capture_output=True, text=True, check=True
    )
    return dict(line.split() for line in ran.stdout.splitlines())


def test_the_kernel_refuses_the_calls_to_the_process_and_its_children():
    expected = dict.fromkeys(MACHINES[platform.machine()].refused, "EPERM")
    expected |= dict.fromkeys(("add_key", "request_key", "keyctl"), "ENOSYS")
    closed = made_calls("all")
    assert closed == expected | {"unshare": "EPERM", "clone3": "ENOSYS"}
    free, some = made_calls("none"), made_calls("namespaces")
    for call in ("unshare", "clone3"):
        assert some[call] == free[call], "as without a filter"
    # Without a filter the kernel reads the arguments, which are wrong: the numbers are right.
    assert {free[call] for call in ("add_key", "request_key", "keyctl", "open_by_handle_at")} <= {
        "EFAULT",
        "EINVAL",
        "EPERM",
    }
    assert sum(free[call] != error for call, error in closed.items()) > len(closed) // 2


def test_a_process_that_could_gain_privileges_gets_no_filter():
    program = CALLS.replace("libc.prctl(38, 1, 0, 0, 0)\n", "")
    ran = subprocess.run(
        [sys.executable, "-c", ON_PATH + program, "all"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert f"seccomp: {os.strerror(errno.EACCES)}" in ran.stderr
