"""Plants faults, one at a time, and sees whether worlds find them.

    python tests/world/planted/plant.py                  all of them
    python tests/world/planted/plant.py --only w03,d07   some

Each runs in a process of its own, on seeds from 1 on, for two minutes of processor time at most.
The file in the working tree stays as it is: the fault is put into the module as it is imported.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from written import SHARES, WRITTEN  # noqa: E402 - beside this file

#: Processor time within which a fault has to be found.
LIMIT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault.

    Attributes:
        name: ``w`` and ``s`` for written, ``d`` for drawn, and a number.
        path: of the module.
        before: lines of it.
        after: what becomes of them.
        what: in words.
        equivalent: why no check could notice it; empty if it is a fault.
    """

    name: str
    path: str
    before: str
    after: str
    what: str
    equivalent: str = ""

    @property
    def module(self) -> str:
        """The module's name."""
        return self.path.removeprefix("tests/support/").removesuffix(".py").replace("/", ".")

    def applied(self, code: str) -> str:
        """Return the module's code with the fault.

        Raises:
            ValueError: its lines are not there, or more than once: the code has changed.
        """
        if code.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: {self.path} has its lines {code.count(self.before)} times"
            )
        return code.replace(self.before, self.after)


def all_planted() -> tuple[Planted, ...]:
    """Return every fault: those written by hand, and those that were drawn."""
    names = ("name", "path", "before", "after", "what")
    written = [Planted(**dict(zip(names, row, strict=True))) for row in (*WRITTEN, *SHARES)]
    rows = json.loads((HERE / "drawn.json").read_text())
    reasons = json.loads((HERE / "equivalent.json").read_text())
    drawn = [
        Planted(
            name=row["name"],
            path=row["path"],
            before=row["before"],
            after=row["after"],
            what=row["kind"].removeprefix("core/"),
            equivalent=reasons.get(row["name"], ""),
        )
        for row in rows
    ]
    return (*written, *drawn)


class Planter(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module with a fault in it."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        spec = importlib.util.find_spec(planted.module)
        if spec is None or spec.origin is None:
            raise ValueError(f"{planted.module} is not there")
        self._origin = spec.origin

    def find_spec(self, name, path=None, target=None):
        """Return the module's spec, and none for all others."""
        if name != self._planted.module:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=self._origin)

    def get_filename(self, _name: str) -> str:
        """Return the module's path."""
        return self._origin

    def get_data(self, path: str) -> bytes:
        """Return the module's code with the fault; nothing that was compiled before."""
        if path != self._origin:
            raise OSError(path)
        return self._planted.applied(Path(path).read_text()).encode()


def plant(name: str) -> None:
    """Have a fault in this process, from the next import on."""
    planted = next(one for one in all_planted() if one.name == name)
    sys.meta_path.insert(0, Planter(planted))


def hunt(planted: Planted, limit_s: int = LIMIT_S) -> tuple[str, float]:
    """Return by which seed a fault was found, or how it was not, and the processor time."""
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable, str(HERE.parent / "run.py"), "--plant", planted.name,
            "--seeds", "1-100000", "--fail-fast",
        ],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
    )  # fmt: skip
    found = re.search(r"^seed (\d+) went wrong:\n +(.*)$", done.stdout, re.MULTILINE)
    cpu = re.search(r"in (\d+) s of processor time", done.stdout)
    took_s = float(cpu[1]) if cpu else min(time.monotonic() - began, limit_s)
    if found:
        return f"seed {found[1]}: {found[2][:110]}", took_s
    if done.returncode > 0 and planted.path in done.stderr:
        return f"at the start: {done.stderr.strip().splitlines()[-1][:110]}", took_s
    if -done.returncode not in {signal.SIGXCPU, signal.SIGKILL}:
        raise RuntimeError(f"{planted.name}: {done.returncode}: {done.stderr[-2000:]}")
    return "", took_s


def main() -> int:
    """Plant all that are asked for; return how many faults were not found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names, such as w03,d07")
    parser.add_argument("--limit", type=int, default=LIMIT_S, help="seconds of processor time")
    parser.add_argument("--jobs", type=int, default=2, help="at once")
    options = parser.parse_args()
    only = set(options.only.split(",")) if options.only else None
    chosen = [one for one in all_planted() if only is None or one.name in only]
    hunted = [one for one in chosen if not one.equivalent]
    with ThreadPoolExecutor(options.jobs) as pool:
        missed = 0
        for planted, (how, took_s) in zip(
            hunted, pool.map(lambda one: hunt(one, options.limit), hunted), strict=True
        ):
            missed += not how
            place = planted.path.rpartition("/")[2]
            print(f"{planted.name} {place:16} {planted.what[:60]:60} {took_s:4.0f} s  {how or '-'}")
            sys.stdout.flush()
    for planted in chosen:
        if planted.equivalent:
            print(f"{planted.name} {planted.path}: nothing to be found: {planted.equivalent}")
    part = 100.0 * (len(hunted) - missed) / max(len(hunted), 1)
    print(f"{len(hunted) - missed} of {len(hunted)} faults were found, {part:.0f} %")
    return missed


if __name__ == "__main__":
    sys.exit(main())
