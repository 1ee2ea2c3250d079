"""How many files a change touches: makes seven changes in copies of the tree, and proves each.

    python -m leasehold_testing.changes [--json] [--only NAME]...      (`make change-table`)

A change is a list of insertions before existing lines, or a package beside the tree. Its proof is a
test that uses the addition as people would, with real parts. `docs/explanation` shows
the table, and a unit test applies the insertions, so that they stay true of the sources.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from difflib import ndiff
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import scheduler.errors
from leasehold_testing.change_proofs import BACKEND, EVENT, FIELD, FILTER, FORMAT, METRIC, SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = Path(__file__).resolve().parents[3]
#: The place of the packages: there too, or their installation.
SOURCES: Final = Path(scheduler.errors.__file__).resolve().parents[1]
#: Names that a copy of the tree leaves out.
_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git",
    ".venv",
    ".*_cache",
    "__pycache__",
    "out",
    "dist",
    "build",
    ".hypothesis",
    "node_modules",
)
_FORMS: Final = "leasehold/client/forms.py"
_REST: Final = "docs/reference/rest-api.md"
_CLI: Final = "docs/reference/cli.md"
_MONITOR: Final = "docs/how-to/monitor.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertion:
    """Text that goes before a line.

    Attributes:
        path: of the file, from the root of the tree.
        before: the line, which is there once.
        text: with its line end.
    """

    path: str
    before: str
    text: str

    def applied(self, source: str) -> str:
        """Return the file with the text.

        Raises:
            LookupError: the line is not there, or is there several times.
        """
        found = source.count(self.before)
        if found != 1:
            raise LookupError(
                f"{self.path} has {found} times {self.before!r}, before which a change is made; "
                "mend the change in leasehold_testing.changes"
            )
        return source.replace(self.before, self.text + self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change, and what shows that it works.

    Attributes:
        name: in the table.
        made: the addition, in a few words.
        before: files that it touched at 9d5e9d5, found by hand.
        edits: the lines written by hand.
        written: files that `make written` brings up to date.
        plugin: file of a package of its own -> content; the tree is not touched.
        group: entry-point group of the package; ``point`` is the line of its entry point.
        point: as above.
        proof: a test, and its place in the tree, so that it finds its fixtures.
        proof_at: as above.
        suites: tests of the tree that have to pass, too.
    """

    name: str
    made: str
    before: tuple[str, ...]
    edits: tuple[Insertion, ...] = ()
    written: tuple[str, ...] = ()
    plugin: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    point: str = ""
    proof: str
    proof_at: str
    suites: tuple[str, ...] = ()

    @property
    def by_hand(self) -> tuple[str, ...]:
        """The files of the tree that a change by hand touches."""
        return tuple(dict.fromkeys(edit.path for edit in self.edits))

    def applied(self, root: Path = SOURCES) -> dict[str, str]:
        """Return the files that are touched by hand, with the change.

        Raises:
            LookupError: the sources are not as the change takes them to be.
        """
        made: dict[str, str] = {}
        for edit in self.edits:
            source = made.get(edit.path) or (root / edit.path).read_text()
            made[edit.path] = edit.applied(source)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a change.

    Attributes:
        name: of the change.
        before: files at 9d5e9d5.
        by_hand: files of the tree, touched by hand.
        written: files of the tree that `make written` touched.
        lines: lines that were written by hand in the tree.
        plugin_lines: lines of the package beside it, its entry point included.
        passed: whether its proof and the suites passed; ``said`` is their output.
        said: as above.
    """

    name: str
    before: int
    by_hand: tuple[str, ...]
    written: tuple[str, ...]
    lines: int
    plugin_lines: int
    passed: bool
    said: str


CHANGES: Final[tuple[Change, ...]] = (
    Change(
        name="a job's field",
        made="`warm_up_s`, a span of time, from REST, files and the command line into stored rows",
        before=(
            "scheduler/domain/jobs/spec.py",
            "api/schemas/jobs.py",
            "api/jobs/conversions.py",
            "scheduler/cli/service/spec_options.py",
            "scheduler/cli/service/submit.py",
            "scheduler/cli/service/spec_files.py",
            "scheduler/cli/service/wording.py",
            _REST,
            _CLI,
        ),
        edits=(
            Insertion(
                path="scheduler/domain/jobs/spec.py",
                before="    space_sharing: bool = asked(\n",
                text="    warm_up_s: float | None = asked(\n"
                "        SOME_SECONDS,\n"
                '        "seconds that its start takes before it counts steps",\n'
                "        default=None,\n"
                '        option=Option(help="Time before it counts steps.", metavar="SPAN"),\n'
                "    )\n",
            ),
        ),
        written=(_CLI, _REST, _FORMS),
        proof=FIELD,
        proof_at="tests/live/cli_service/test_of_the_change.py",
        suites=(
            "tests/unit/scheduler/domain/test_fields.py",
            "tests/unit/leasehold/client/test_openapi.py",
            "tests/unit/docs/test_written.py",
            "tests/unit/docs/test_docs.py",
        ),
    ),
    Change(
        name="a filter of REST",
        made="`entity`, in lists, selectors, stores and `leasehold jobs`",
        before=(
            "scheduler/store/queries.py",
            "scheduler/store/memory.py",
            "scheduler/store/sql/queries.py",
            "api/routes/jobs_read.py",
            "api/schemas/jobs.py",
            "api/jobs/selection.py",
            "scheduler/cli/service/selection.py",
            "scheduler/cli/service/jobs.py",
            _REST,
            _CLI,
        ),
        edits=(
            Insertion(
                path="scheduler/store/filters.py",
                before="    labels: Mapping[str, str] = field(",
                text="    entities: tuple[str, ...] = _any_of(\n"
                '        "entity", Word.SUBJECT, Option(help="Only these.", metavar="A[,B...]")\n'
                "    )\n",
            ),
        ),
        written=(_CLI, _REST, _FORMS),
        proof=FILTER,
        proof_at="tests/live/cli_service/test_of_the_change.py",
        suites=(
            "tests/live/store/test_contract_of_jobs.py",
            "tests/unit/leasehold/client/test_openapi.py",
            "tests/unit/docs/test_written.py",
            "tests/unit/docs/test_service_pages.py",
        ),
    ),
    Change(
        name="a source of configurations",
        made="one that knows a way on two workers of one node",
        before=(
            "planner/<new>.py",
            "planner/catalogue.py",
            "planner/oracle.py",
            "scheduler/config/settings.py",
            "docs/reference/configuration.md",
        ),
        plugin={"of_the_change.py": SOURCE.module},
        group="leasehold.sources",
        point="in_halves = of_the_change:InHalves",
        proof=SOURCE.proof,
        proof_at="tests/unit/planner/test_of_the_change.py",
    ),
    Change(
        name="an event",
        made="`deadline_given`, noted when a job comes with a deadline",
        before=(
            "scheduler/views/history_kinds.py",
            "scheduler/runtime/submitting.py",
            _REST,
        ),
        edits=(
            Insertion(
                path="scheduler/views/history_kinds.py",
                before='    JOB_ADMITTED = "job_admitted"',
                text='    DEADLINE_GIVEN = "deadline_given"\n',
            ),
            Insertion(
                path="scheduler/control/jobs/submit.py",
                before="    if record.blocked_on is None:\n        submit_to_engine(",
                text="    if item.spec.deadline_s is not None:\n"
                '        transaction.record_event("deadline_given", "job", record.job_id, '
                "actor=actor)\n",
            ),
        ),
        written=(_REST, _FORMS),
        proof=EVENT,
        proof_at="tests/unit/scheduler/control/test_of_the_change.py",
        suites=(
            "tests/live/api/test_events.py",
            "tests/unit/leasehold/client/test_openapi.py",
            "tests/unit/docs/test_written.py",
            "tests/unit/docs/test_service_pages.py",
        ),
    ),
    Change(
        name="a metric",
        made="`leasehold_submissions_total`, counted with the jobs that are taken in",
        before=("scheduler/views/metrics.py", _MONITOR),
        edits=(
            Insertion(
                path="scheduler/views/metrics.py",
                before="        self._ended = self._counter(\n",
                text='        self._submissions = self._counter("submissions", "Requests.")\n',
            ),
            Insertion(
                path="scheduler/views/metrics.py",
                before="        self._submitted.inc(jobs)\n",
                text="        self._submissions.inc()\n",
            ),
        ),
        written=(_MONITOR,),
        proof=METRIC,
        proof_at="tests/live/runtime/test_of_the_change.py",
        suites=(
            "tests/live/runtime/test_metrics.py",
            "tests/unit/docs/test_written.py",
            "tests/unit/docs/test_service_pages.py",
        ),
    ),
    Change(
        name="a format of traces",
        made="one that is told by its first line",
        before=("traces/<new>.py", "traces/reader.py", "docs/reference/traces.md"),
        plugin={"of_the_change.py": FORMAT.module},
        group="leasehold.traces",
        point="dashes = of_the_change:DASHES",
        proof=FORMAT.proof,
        proof_at="tests/unit/traces/test_of_the_change.py",
    ),
    Change(
        name="a backend of the agent",
        made="one that runs a job under it to its end, with a setting of its own",
        before=("agent/<new>.py", "scheduler/daemon/agent.py", "scheduler/cli/agent.py", _CLI),
        plugin={"of_the_change.py": BACKEND.module},
        group="leasehold.backends",
        point="careful = of_the_change:careful",
        proof=BACKEND.proof,
        proof_at="tests/live/agent/test_of_the_change.py",
    ),
)


def table() -> str:
    """Return the changes for the page, in Markdown."""
    lines = [
        "| change | files before | by hand now | which | written by `make written` | lines |",
        "|---|---|---|---|---|---|",
    ]
    for change in CHANGES:
        which = ", ".join(f"`{path}`" for path in change.by_hand) or "a package of its own"
        written = ", ".join(f"`{path}`" for path in change.written)
        lines.append(
            f"| {change.name} | {len(change.before)} | {len(change.by_hand)} | {which} | "
            f"{written} | {_lines_of(change)} |"
        )
    return "\n".join(lines)


def _lines_of(change: Change) -> int:
    """Return the lines written by hand, those of a package included."""
    texts = [*(edit.text for edit in change.edits), *change.plugin.values()]
    return sum(len(text.splitlines()) for text in texts) + bool(change.plugin)


def made(change: Change, folder: Path) -> Outcome:
    """Make a change in a copy of the tree, and prove it.

    Args:
        change: which.
        folder: empty; for the copy.
    """
    tree, package = folder / "tree", folder / "package"
    shutil.copytree(ROOT, tree, ignore=_LEFT_OUT, symlinks=True)
    for path, text in change.applied(tree).items():
        (tree / path).write_text(text)
    by_hand, lines = _changed(tree, ROOT)
    package.mkdir()
    if change.plugin:
        _install(change, package)
    path = os.pathsep.join(map(str, (tree, tree / "tests" / "support", package)))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    said = _written(tree, environment) if change.edits else ""
    touched, _ = _changed(tree, ROOT)
    (tree / change.proof_at).write_text(change.proof)
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-x")
    ran = _run(tree, environment, *options, change.proof_at, *change.suites)
    written = tuple(path for path in touched if path not in by_hand)
    agrees = (set(by_hand), set(written)) == (set(change.by_hand), set(change.written))
    return Outcome(
        name=change.name,
        before=len(change.before),
        by_hand=by_hand,
        written=written,
        lines=lines,
        plugin_lines=_lines_of(change) if change.plugin else 0,
        passed=ran.returncode == 0 and agrees and not said,
        said=said or ran.stdout + ran.stderr,
    )


def _install(change: Change, package: Path) -> None:
    """Put a package there as an installer would."""
    for name, text in change.plugin.items():
        (package / name).write_text(text)
    about = package / "of_the_change-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: of-the-change\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{change.group}]\n{change.point}\n")


def _written(tree: Path, environment: Mapping[str, str]) -> str:
    """Do what `make written` does; returns what went wrong."""
    forms = _run(tree, environment, "-m", "leasehold_testing.client_forms")
    if forms.returncode:
        return forms.stderr
    (tree / _FORMS).write_text(forms.stdout)
    for step in (("-m", "ruff", "format", "-q", _FORMS), ("-m", "leasehold_testing.written")):
        ran = _run(tree, environment, *step)
        if ran.returncode:
            return ran.stderr
    return ""


def _run(
    tree: Path, environment: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )


def _changed(tree: Path, base: Path) -> tuple[tuple[str, ...], int]:
    """Return the files that differ, and how many lines are new."""
    touched, lines = [], 0
    for file in sorted(tree.rglob("*")):
        name = file.relative_to(tree)
        caches = any(part[0] == "." or part == "__pycache__" for part in name.parts[:-1])
        if caches or not file.is_file():
            continue
        old, new = base / name, file.read_bytes()
        if not old.exists() or old.read_bytes() != new:
            touched.append(str(name))
            before = old.read_text().splitlines() if old.exists() else []
            lines += sum(line[0] == "+" for line in ndiff(before, new.decode().splitlines()))
    return tuple(touched), lines


def main(arguments: Iterable[str] | None = None) -> int:
    """Make the changes, print the table, and say what failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", action="append", default=[], help="a change by its name")
    given = parser.parse_args(None if arguments is None else list(arguments))
    chosen = [change for change in CHANGES if not given.only or change.name in given.only]
    outcomes = []
    for change in chosen:
        with tempfile.TemporaryDirectory(prefix="leasehold-change-") as folder:
            outcomes.append(made(change, Path(folder)))
    if given.json:
        print(json.dumps([_told(outcome) for outcome in outcomes], indent=2))
    else:
        _show(outcomes)
    return 0 if outcomes and all(outcome.passed for outcome in outcomes) else 1


def _told(outcome: Outcome) -> dict[str, Any]:
    told = asdict(outcome)
    return told if not outcome.passed else {k: v for k, v in told.items() if k != "said"}


def _show(outcomes: Iterable[Outcome]) -> None:
    print(f"{'change':28}{'before':>8}{'by hand':>9}{'written':>9}{'lines':>7}  proof")
    for outcome in outcomes:
        figures = (outcome.before, len(outcome.by_hand), len(outcome.written))
        lines = outcome.lines + outcome.plugin_lines
        proof = "passed" if outcome.passed else "FAILED"
        print(f"{outcome.name:28}{figures[0]:>8}{figures[1]:>9}{figures[2]:>9}{lines:>7}  {proof}")
        if not outcome.passed:
            print(outcome.said)


if __name__ == "__main__":
    sys.exit(main())
