"""Formats are found by name; plugins add to them, and what cannot be used is named."""

import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from scheduler.errors import InputError, TraceError
from traces import FORMATS, formats, read_throughputs, read_trace
from traces.formats import TraceFormat, TracePluginWarning, format_names, trace_format
from traces.trace import ParsedTrace, TraceJob


def parse_dashes(text, *, path):
    rows = text.splitlines()[1:]
    return ParsedTrace(
        jobs=[
            TraceJob(line=i, arrival_s=float(row), duration_s=60.0, scale_factors=(1,))
            for i, row in enumerate(rows, 2)
        ]
    )


DASHES = TraceFormat(parse=parse_dashes, starts=lambda line: line == "---", shape="dashes")
GREEDY = TraceFormat(parse=parse_dashes, starts=lambda _: True, shape="anything")
TIMID = TraceFormat(parse=parse_dashes, starts=lambda line: bool(line[99]), shape="long lines")


def plugin(name, value, distribution="somebody"):
    point = EntryPoint(name=name, value=value, group=formats.GROUP)
    vars(point)["dist"] = SimpleNamespace(name=distribution)
    return point


@pytest.fixture
def plugged(monkeypatch):
    def use(*plugins):
        monkeypatch.setattr(formats, "entry_points", lambda group: list(plugins))

    # The test module's own name, so that an entry point can import from it.
    monkeypatch.setitem(sys.modules, "my_format", sys.modules[__name__])
    return use


def test_every_built_in_format_can_be_loaded_and_says_what_it_looks_like():
    assert format_names()[: len(FORMATS)] == FORMATS
    assert all(isinstance(trace_format(name), TraceFormat) for name in FORMATS)
    assert len({trace_format(name).shape for name in FORMATS}) == len(FORMATS)


def test_a_plugin_is_told_by_its_first_line_and_by_its_name(plugged, write):
    plugged(plugin("dashes", "my_format:DASHES"), plugin("dashes", "my_format:DASHES"))
    path = write("t.txt", "---\n5\n7\n")
    table = read_throughputs("bundled")
    for asked in ("auto", "dashes"):
        trace = read_trace(path, format=asked, throughputs=table)
        assert trace.format == "dashes"
        assert [job.arrival_s for job in trace.jobs] == [5.0, 7.0]


def test_a_plugin_takes_no_file_of_a_built_in_format(plugged, write):
    plugged(plugin("greedy", "my_format:GREEDY"), plugin("csv", "my_format:GREEDY"))
    path = write("t.csv", "job_type,total_steps,arrival_s\na,5,0\n")
    assert read_trace(path).format == "csv"
    assert [job.total_steps for job in read_trace(path, format="csv").jobs] == [5.0]
    assert format_names() == (*FORMATS, "greedy")


def test_what_is_of_no_format_lists_those_of_plugins_too(plugged, write):
    plugged(plugin("dashes", "my_format:DASHES"))
    with pytest.raises(TraceError, match=r"known are gavel \(10 columns .*, dashes \(dashes\)"):
        read_trace(write("t.txt", "what is this\n"))
    with pytest.raises(TraceError, match="the line has 3 columns separated by tabs"):
        read_trace(write("t.txt", "a\tb\tc\n"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("slurm", "unknown trace format 'slurm'; known are gavel, .*, jsonl, far, no, timid, two$"),
        ("two", "that of two plugins"),
        ("far", r"'far' \(no_such_module:X of somebody\) failed: ModuleNotFoundError"),
        ("no", "is a type; it must be a traces.formats.TraceFormat"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(plugged, write, name, reason):
    plugged(
        plugin("two", "my_format:DASHES"),
        plugin("two", "other:X", "another"),
        plugin("far", "no_such_module:X"),
        plugin("no", "builtins:dict"),
        plugin("timid", "my_format:TIMID"),
    )
    with pytest.raises(InputError, match=reason):
        read_trace(write("t.txt", "---\n"), format=name)


def test_a_plugin_that_nobody_asked_for_is_skipped_with_a_warning(plugged, write):
    plugged(plugin("far", "no_such_module:X"), plugin("greedy", "my_format:DASHES"))
    table = read_throughputs("bundled")
    with pytest.warns(TracePluginWarning, match="skipped: trace format 'far'"):
        assert read_trace(write("t.txt", "---\n5\n"), throughputs=table).format == "greedy"


def test_a_plugin_that_fails_while_it_tells_is_named(plugged, write):
    plugged(plugin("timid", "my_format:TIMID"))
    with pytest.raises(InputError, match=r"'timid' failed to tell .* IndexError"):
        read_trace(write("t.txt", "---\n"))


def test_a_plugin_of_the_release_before_makes_drafts_with_a_warning():
    from traces.draft import Draft, Drafts

    with pytest.warns(DeprecationWarning, match=r"give a traces\.trace\.TraceJob") as warned:
        job = Draft(
            line=3, arrival_s=1.0, scale_factor=2, duration_s=60.0, slo=1.5, checkpoints=False
        )
    assert warned[0].filename == __file__
    assert (job.scale_factors, job.duration_s, job.slo, job.line) == ((2,), 60.0, 1.5, 3)
    assert not job.checkpoints
    assert Drafts(jobs=[job], relative=True).relative


def test_conditions_of_the_release_before_are_fields_of_a_job_with_a_warning():
    from traces import trace
    from traces.draft import Draft

    with pytest.warns(DeprecationWarning, match=r"TraceJob has their fields") as warned:
        conditions = trace.Conditions(project="", depends_on=("a",), retry_oom=False)
    assert conditions.depends_on == ("a",)
    with pytest.warns(DeprecationWarning, match="give a"):
        job = Draft(line=3, arrival_s=1.0, scale_factor=2, job_id="b", conditions=conditions)
    assert (job.project, job.depends_on, job.retry_oom) == ("default", ("a",), False)
    jobs = (trace.TraceJob(job_id="a", scale_factors=(1,)), job)
    with pytest.warns(DeprecationWarning, match=r"TraceJob has their fields") as found:
        assert trace.Trace(jobs=jobs).conditions == {"b": job}
    assert [one.filename for one in (*warned, *found)] == [__file__] * 2
    with pytest.raises(AttributeError, match=r"'traces\.trace' has no attribute 'Nothing'"):
        trace.Nothing  # noqa: B018
