"""Pages, followed to the letter in an empty folder: each command ends and prints as it is shown."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
from reader import ROOT, Reader, Step, expected, steps

DOCS = ROOT / "docs"
UP = "leasehold up --round-length 10 --set leases.notice_s=1 --set leases.grace_s=1"
TWO = f"{UP} --worker v100:1 --worker k80:1"
PROGRAM = "import sys, time\nprint('accuracy 0.91')\ntime.sleep({})\n"


@pytest.fixture
def reader():
    with tempfile.TemporaryDirectory(prefix="lh-") as folder:  # the path of a socket is short
        found = Reader(Path(folder))
        for name, seconds in {"train": 100.0, "report": 0.0, "evaluate": 0.0}.items():
            (found.here / f"{name}.py").write_text(PROGRAM.format(seconds))
        try:
            yield found
        finally:
            found.stop()


@pytest.mark.long
def test_the_tutorial_of_a_first_live_job(reader):
    reader.follow((DOCS / "tutorial" / "first-live-job.md").read_text())


def test_the_readme(reader):
    reader.follow((ROOT / "README.md").read_text())


@pytest.mark.parametrize(
    ("page", "leave_out"),
    [
        ("tutorial/first-replay", ()),
        ("tutorial/tour-of-the-page", ()),
        ("how-to/open-in-perfetto", ()),
        ("how-to/plan-a-model", ()),
        ("tutorial/first-planned-job", ()),
        ("how-to/compare-policies", ("leasehold compare ...",)),
    ],
)
def test_a_page_about_replays(reader, page, leave_out):
    reader.follow((DOCS / f"{page}.md").read_text(), leave_out=leave_out)


@pytest.mark.parametrize(
    ("page", "up", "leave_out"),
    [
        ("submit-and-watch-jobs", f"{UP} --worker v100:4 --worker k80:2", ()),
        # A package of one's own is on the page about writing a policy.
        ("switch-the-policy", TWO, ("/opt/leasehold", "leasehold policy set total_delay")),
        # The job that waits for a quota is made up.
        ("limit-projects", TWO, ("leasehold explain",)),
        ("give-out-tokens", TWO, ()),
    ],
)
def test_a_guide(reader, page, up, leave_out):
    reader.start(Step(command=up))
    reader.follow((DOCS / "how-to" / f"{page}.md").read_text(), leave_out=leave_out)


def test_the_guide_about_draining(reader):
    reader.start(Step(command=f"{UP} --worker v100:2 --node gpu-1"))
    reader.type(Step(command="leasehold submit --name busy -C . -- python train.py"))
    reader.type(Step(command="until leasehold jobs | grep running; do sleep 1; done"))
    reader.follow((DOCS / "how-to" / "drain-a-node.md").read_text())


def test_the_guide_about_use(reader):
    reader.start(Step(command=TWO))
    reader.type(Step(command="leasehold submit --wait -C . -- python report.py"))
    page = (DOCS / "how-to" / "see-what-was-used.md").read_text()
    reader.follow(page.partition("\n## Held, and used")[0])


def test_what_a_reader_looks_for():
    (step,) = steps("```\n$ for a in b; do\n>   c\n> done\nd-1234567a  2\n\ne  1\nf 3.5s g\n```")
    assert step.command == "for a in b; do\n  c\ndone"
    assert expected(step.shown) == ["d-ID N", "f N g"]
    assert expected(("...", "a 1 ... b")) == ["a N", "b"]


def test_a_page_that_shows_what_is_not_printed_is_not_followed(reader):
    with pytest.raises(AssertionError, match=r"did not print \['two'\]"):
        reader.follow("```console\n$ echo one; exit 1\ntwo\n```")
    with pytest.raises(AssertionError, match="ended with 3"):
        reader.follow("```console\n$ exit 3\n```")
