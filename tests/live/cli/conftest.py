"""The command line within this process: the simulations still run in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from leasehold.cli.main import main
from simulator.many import parallel

FRAGILE = """\
from dataclasses import dataclass
from typing import ClassVar

from policies.built_in.fifo import Fifo


@dataclass(frozen=True, kw_only=True)
class Fragile(Fifo):
    name: ClassVar[str] = "fragile"

    def allocate(self, problem):
        if problem.capacity.sum() > 1:
            raise RuntimeError("too many workers")
        return super().allocate(problem)
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def leasehold(capfd, monkeypatch, tmp_path):
    """Return a function that runs a command in the folder of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["leasehold", *map(str, arguments)])
        try:
            code = main()
        except SystemExit as end:
            code = end.code
        return Ran(code, *capfd.readouterr())

    return run


@pytest.fixture
def plugged(monkeypatch, tmp_path_factory):
    """Return a function that installs a policy: the module's text, its class, and its name."""

    def install(text, value, name):
        site = tmp_path_factory.mktemp("site")
        (site / f"{name}_policy.py").write_text(text)
        info = site / f"{name}_policy-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}-policy\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(
            f"[leasehold.policies]\n{name} = {name}_policy:{value}\n"
        )
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, f"{name}_policy", raising=False)

    return install


@pytest.fixture
def fragile(plugged):
    """Install the policy ``fragile``: ``fifo``, which fails on clusters of several workers."""
    plugged(FRAGILE, "Fragile", "fragile")


@pytest.fixture
def replays_in_threads(monkeypatch):
    """Run each replay in a thread of this process, which has imported and compiled everything.

    A process of its own takes a second or two, a replay of a few jobs some milliseconds.
    """

    def start(message):
        ours, theirs = multiprocessing.Pipe()
        ours.send_bytes(message)
        thread = threading.Thread(target=parallel.run_one, args=(theirs,))
        thread.start()
        return ours, SimpleNamespace(wait=thread.join, kill=lambda: None)

    # A thread may not set signal handlers.
    ignored = SimpleNamespace(signal=lambda *_: None, **signal.Signals.__members__, SIG_IGN=None)
    monkeypatch.setattr(parallel, "signal", ignored)
    monkeypatch.setattr(parallel, "_start", start)
