"""Traces: every format, round trips, and messages about bad ones."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_trace import small_trace

from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError, TraceError
from traces import Trace, TraceJob, extend_scale_factors, read_throughputs, read_trace, write_trace
from traces.trace import CHECKPOINTS

TEN = ["a", "run me", "some/where", "--steps", "1", "1000", "2", "1.5", "-1.000000", "60.5"]
SEVEN = ["b", "run me", "--steps", "1", "500", "30", "1"]
TWELVE = [*TEN[:7], "gns", "1", "-1.0", "1418", "12"]


def tabbed(*rows: list[str]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def changed(row: list[str], at: int, value: str) -> list[str]:
    return [*row[:at], value, *row[at + 1 :]]


def test_gavels_ten_columns(write, table):
    text = tabbed(TEN, changed(changed(TEN, 0, "b"), 9, "0"))
    trace = read_trace(write("t.trace", text), throughputs=table)
    assert trace.format == "gavel"
    late = trace.jobs[1]
    assert [j.job_id for j in trace.jobs] == ["1", "0"]
    assert (late.job_type, late.total_steps, late.scale_factor) == ("a", 1000.0, 2)
    assert (late.weight, late.deadline_s, late.arrival_s) == (1.5, None, 60.5)
    assert late.labels["command"] == "run me"
    assert trace.scale_factors == (2,)
    assert trace.span_s == 60.5


def test_gavels_seven_columns(write):
    trace = read_trace(write("t.trace", tabbed(SEVEN)))
    job = trace.jobs[0]
    assert trace.format == "gavel"
    assert (job.job_type, job.total_steps, job.arrival_s, job.scale_factor) == ("b", 500.0, 30.0, 1)


def test_an_slo_is_a_multiple_of_the_duration_on_the_reference_worker_type(write, table):
    path = write("t.trace", tabbed(changed(TEN, 8, "2.5")))
    # a at scale factor 2 does 18 steps/s on v100 and 4 on k80; 1000 steps; arrival 60.5.
    job = read_trace(path, throughputs=table).jobs[0]
    assert job.deadline_s == pytest.approx(60.5 + 2.5 * 1000 / 18)
    job = read_trace(path, throughputs=table, reference_worker_type="k80").jobs[0]
    assert job.deadline_s == pytest.approx(60.5 + 2.5 * 1000 / 4)
    with pytest.raises(TraceError, match=r":1: field 'SLO'.*give a throughput table"):
        read_trace(path)


def test_an_slo_of_a_job_that_runs_elsewhere_only_refers_to_its_fastest_type(write, table):
    path = write("t.trace", tabbed(changed(changed(changed(TEN, 8, "2"), 0, "b"), 6, "1")))
    job = read_trace(path, throughputs=table, reference_worker_type="k80").jobs[0]
    assert job.deadline_s == pytest.approx(60.5 + 2 * 1000 / 4)


def test_an_slo_of_a_job_that_runs_nowhere_is_refused(write, table):
    path = write("t.trace", tabbed(changed(changed(TEN, 8, "2"), 0, "solo")))
    with pytest.raises(TraceError, match=r"t\.trace:1: job field 'SLO' has the value 2\.0"):
        read_trace(path, throughputs=table)


def test_shockwaves_twelve_columns(write):
    path = write("t.trace", tabbed(TWELVE, changed(TWELVE, 9, "2")))
    first, second = read_trace(path).jobs
    assert read_trace(path).format == "shockwave"
    assert (first.labels["mode"], first.arrival_s, first.deadline_s) == ("gns", 12.0, None)
    assert second.deadline_s == 12.0 + 2 * 1418  # the file itself states the duration


PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 07:00:55,100.0,8,800.0,6214e9
"""
ITP = "job_id,submission_time,duration,num_gpu\nx,1100,20,1\ny,1000,10,2\n"


def test_philly_jobs_get_types_steps_and_relative_arrivals(write, table):
    path = write("p.csv", PHILLY)
    with pytest.raises(TraceError, match=r"p\.csv:3: field 'num_gpus' value 8: .*derive"):
        read_trace(path, throughputs=table)
    trace = read_trace(path, throughputs=replace(table, derive_counts=True))
    gang, single = trace.jobs
    assert trace.format == "philly"
    assert (gang.job_id, gang.arrival_s, gang.scale_factor, gang.entity) == ("1", 0.0, 8, "6214e9")
    assert (single.job_id, single.arrival_s, single.entity) == ("0", 60.0, "11cb48")
    assert gang.job_type in {"a", "b"}  # those that distribute
    grown = extend_scale_factors(table, [8])
    assert gang.total_steps == 100.0 * grown.steps_per_s(gang.job_type, 8, "v100")
    assert single.total_steps == 66.0 * table.steps_per_s(single.job_type, 1, "v100")
    assert trace.notes == (
        "job types drawn with seed 0 among those that run on v100",
        "steps = duration x steps/s on v100",
        "throughputs at scale factors 8 are extrapolated",
    )


def test_a_duration_becomes_steps_only_by_a_row(write):
    table = ThroughputTable(isolated={("a", 2): {"v": 3.0}})
    at_two = write("two.csv", "job_type,duration_s,scale_factor,arrival_s\na,10,1 2 4,0\n")
    assert read_trace(at_two, throughputs=table).jobs[0].total_steps == 30.0
    at_four = write("four.csv", "job_type,duration_s,scale_factor,arrival_s\na,10,4,0\n")
    with pytest.raises(TraceError, match=r"four.csv:2: .*'duration_s' has the value 10.0.*no row"):
        read_trace(at_four, throughputs=table)


def test_itp_jobs_keep_their_ids(write, table):
    trace = read_trace(write("i.csv", ITP), throughputs=table)
    assert [(j.job_id, j.arrival_s) for j in trace.jobs] == [("y", 0.0), ("x", 100.0)]


def test_the_draw_of_types_depends_on_the_seed_only_and_the_reference_must_run_them(write, table):
    text = ITP + "".join(f"j{i},{2000 + i},5,1\n" for i in range(50))
    path = write("i.csv", text)
    drawn = [read_trace(path, throughputs=table, seed=seed) for seed in (1, 1, 2)]
    types = [[j.job_type for j in trace.jobs] for trace in drawn]
    assert types[0] == types[1] != types[2]
    assert set(types[0]) == {"a", "b", "solo"}
    on_k80 = read_trace(path, throughputs=table, reference_worker_type="k80").jobs
    assert {j.job_type for j in on_k80} == {"a", "solo"}  # b does not run there


def test_a_gang_that_no_type_can_run_is_refused(write, table):
    lonely = type(table)(isolated={("a", 1): {"v100": 1.0}, ("b", 2): {"k80": 1.0}})
    with pytest.raises(TraceError, match=r"p\.csv:3: field 'num_gpus' value 8: no job type"):
        read_trace(write("p.csv", PHILLY), throughputs=lonely, reference_worker_type="v100")


def test_the_native_csv_takes_defaults_durations_and_missing_types(write, table):
    text = "# made by hand\narrival_s,duration_s,job_type\n10,100,a\n5,100,\n"
    trace = read_trace(write("n.csv", text), throughputs=table)
    drawn, given = trace.jobs
    assert trace.format == "csv"
    assert trace.notes[0] == "made by hand"
    assert (given.job_id, given.total_steps, given.scale_factor) == ("0", 1000.0, 1)
    assert (given.weight, given.max_failures) == (1.0, 3)
    assert drawn.job_type in {"a", "b", "solo"}


def test_limit_keeps_the_first_to_arrive(write, table):
    trace = read_trace(write("i.csv", ITP), throughputs=table, limit=1)
    assert [j.job_id for j in trace.jobs] == ["y"]
    with pytest.raises(InputError, match="limit is 0"):
        read_trace(write("i.csv", ITP), throughputs=table, limit=0)


def test_jobs_that_arrive_together_keep_the_order_of_the_file(write):
    rows = [changed(TEN, 9, str(at)) for at in (5, 1, 5, 1, 1)]
    trace = read_trace(write("t.trace", tabbed(*rows)))
    assert [j.job_id for j in trace.jobs] == ["1", "3", "4", "0", "2"]


NATIVE = "job_type,total_steps,arrival_s,scale_factor\n"


@pytest.mark.parametrize(
    ("text", "line", "field", "value"),
    [
        # Gavel, Shockwave
        (tabbed(TEN[:9]), 1, None, "\t".join(TEN[:9])),
        (tabbed(TEN, SEVEN), 2, None, " | ".join(SEVEN)),
        (tabbed(TEN, changed(TEN, 5, "-3")), 2, "total_steps", "-3"),
        (tabbed(changed(TEN, 5, "many")), 1, "total_steps", "many"),
        (tabbed(changed(TEN, 6, "0")), 1, "scale_factor", "0"),
        (tabbed(changed(TEN, 6, "1.5")), 1, "scale_factor", "1.5"),
        (tabbed(changed(TEN, 7, "0")), 1, "priority_weight", "0"),
        (tabbed(changed(TEN, 8, "-2")), 1, "SLO", "-2"),
        (tabbed(changed(TEN, 8, "0")), 1, "SLO", "0"),
        (tabbed(changed(TEN, 9, "-1")), 1, "arrival_time_s", "-1"),
        (tabbed(changed(TEN, 9, "inf")), 1, "arrival_time_s", "inf"),
        (tabbed(changed(TEN, 0, "")), 1, "job_type", ""),
        (tabbed(TEN, changed(TEN, 0, "aa")), 2, "job_type", "aa"),
        (tabbed(changed(TWELVE, 10, "-7")), 1, "duration_s", "-7"),
        # Philly, ITP
        (PHILLY.replace("66.0,1", "-66.0,1"), 2, "duration", "-66.0"),
        (PHILLY.replace(",8,", ",eight,"), 3, "num_gpus", "eight"),
        (PHILLY.replace("2017-10-09 07:00:55", "yesterday"), 3, "timestamp", "yesterday"),
        (PHILLY.replace(",8,800.0", ",8"), 3, None, "2017-10-09 07:00:55 | 100.0 | 8 | 6214e9"),
        (ITP.replace("1100", "-5"), 2, "submission_time", "-5"),
        (ITP.replace("y,", "x,"), 3, "job_id", "x"),
        # native CSV
        ("job_type,total_steps\na,3\n", 1, "arrival_s", "job_type,total_steps"),
        ("job_type,arrival_s\na,3\n", 1, "total_steps", "job_type,arrival_s"),
        (NATIVE.strip() + ",wait\na,1,1,1,1", 1, "wait", None),
        (NATIVE.strip() + ",job_type\na,1,1,1,1", 1, "job_type", NATIVE.strip() + ",job_type"),
        (NATIVE + "a,,1,1", 2, "total_steps", None),
        (NATIVE + "a,1,,1", 2, "arrival_s", None),
        (NATIVE + "a,1,1,1\na,-1,1,1", 3, "total_steps", "-1"),
        (NATIVE + "a,1,1,1\na,nan,1,1", 3, "total_steps", "nan"),
        (NATIVE + "aa,1,1,1", 2, "job_type", "aa"),
        (NATIVE + "a,1,1,1,1", 2, None, "a | 1 | 1 | 1 | 1"),
        (NATIVE + 'a,1,"1,1', 2, None, None),
        (NATIVE, None, None, None),
        ("job_id,job_type,total_steps,arrival_s\n1,a,1,1\n,a,1,1\n", 3, "job_id", "1"),
        ("labels,job_type,total_steps,arrival_s\nred,a,1,1\n", 2, "labels", "red"),
        # JSON lines
        ('{"job_type": "a"', 1, None, '{"job_type": "a"'),
        ('{"job_type": "a", "total_steps": 1, "arrival_s": 0}\n[1]', 2, None, "[1]"),
        ('{"job_type": "a", "total_steps": -1, "arrival_s": 0}', 1, "total_steps", "-1"),
        ('{"job_type": "a", "steps": 1}', 1, "steps", 1),
        ('{"job_type": 7, "total_steps": 1, "arrival_s": 0}', 1, "job_type", 7),
        ('{"job_type": "a", "total_steps": [1], "arrival_s": 0}', 1, "total_steps", [1]),
        ('{"job_type": "a", "total_steps": true, "arrival_s": 0}', 1, "total_steps", True),
        # none of them
        ("what is this\n1,2,3\n", 1, None, "what is this"),
        ("# only a comment\n", 1, None, "# only a comment"),
    ],
)
def test_a_bad_line_names_file_line_field_and_value(  # noqa: PLR0917
    write, table, text, line, field, value
):
    path = write("bad.txt", text)
    with pytest.raises(TraceError) as caught:
        read_trace(path, throughputs=table)
    error = caught.value
    assert (error.path, error.line, error.field, error.value) == (str(path), line, field, value)
    assert str(path) in str(error)


def test_a_missing_column_of_a_stated_format_is_named(write):
    with pytest.raises(TraceError, match=r":1: field 'num_gpus'.*column 'num_gpus' is missing"):
        read_trace(write("p.csv", "timestamp,duration\n1,2\n"), format="philly")
    with pytest.raises(TraceError, match=r"the line has 3 columns; a gavel trace .* has 10"):
        read_trace(write("p.csv", "a\tb\tc\n"), format="gavel")


def test_an_unknown_type_is_told_with_what_is_close_to_it(write, table):
    known = type(table)(isolated={("ResNet-50 (batch size 64)", 1): {"v100": 1.0}}, source="t.csv")
    path = write("t.trace", tabbed(changed(TEN, 0, "ResNet-50")))
    with pytest.raises(TraceError, match=r"close to it are 'ResNet-50 \(batch size 64\)'"):
        read_trace(path, throughputs=known)


def test_a_workload_without_types_needs_a_table(write):
    with pytest.raises(TraceError, match=r"p\.csv:2: field 'job_type'.*give a throughput table"):
        read_trace(write("p.csv", PHILLY))


def test_an_unknown_format_lists_what_there_is(write):
    with pytest.raises(InputError, match="'slurm'; known are gavel, shockwave, philly, msr-itp"):
        read_trace(write("p.csv", PHILLY), format="slurm")


def test_bytes_that_are_no_text_are_refused_with_their_line(write):
    with pytest.raises(TraceError, match=r"t\.trace:2: .*not UTF-8"):
        read_trace(write("t.trace", tabbed(TEN).encode() + b"\x1f\x8b\xff"))


words = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6)
positive = st.floats(min_value=1e-6, max_value=1e12)


@st.composite
def some_jobs(draw: st.DrawFn) -> tuple[TraceJob, ...]:
    arrivals = sorted(draw(st.lists(st.floats(0, 1e7), min_size=1, max_size=5)))
    return tuple(
        TraceJob(
            job_id=f"j{i}" + draw(words),
            job_type="t" + draw(words),
            total_steps=draw(positive),
            scale_factors=(draw(st.integers(1, 64)),),
            arrival_s=arrival_s,
            weight=draw(positive),
            deadline_s=draw(st.none() | st.floats(0, 1e8)),
            entity=draw(words),
            max_failures=draw(st.integers(0, 9)),
            restart_s=draw(st.floats(0, 1e4)),
            restarts=draw(st.dictionaries(words, st.floats(0, 1e4), max_size=2)),
            worker_types=draw(st.sampled_from([(), ("a100",), ("a100", "v100")])),
            labels=draw(st.dictionaries(words, words, max_size=2)),
            checkpoint_dir=CHECKPOINTS if draw(st.booleans()) else None,
            preemptible=draw(st.booleans()),
            min_run_time_s=draw(st.just(0.0) | st.floats(0, 1e6)),
        )
        for i, arrival_s in enumerate(arrivals)
    )


@given(jobs=some_jobs(), suffix=st.sampled_from([".csv", ".jsonl"]))
def test_any_jobs_survive_the_round_trip(tmp_path_factory, jobs, suffix):
    path = tmp_path_factory.mktemp("trace") / f"t{suffix}"
    write_trace(Trace(jobs=jobs, notes=("one", "two")), path)
    back = read_trace(path)
    assert back.jobs == jobs
    assert back.notes == (("one", "two") if suffix == ".csv" else ())


def test_writing_needs_a_known_suffix_and_leaves_nothing_half_written(tmp_path):
    with pytest.raises(TraceError, match=r"end the name with \.csv or \.jsonl"):
        write_trace(Trace(jobs=()), tmp_path / "t.json")
    good = TraceJob(job_id="0", job_type="a", total_steps=1.0)
    bad = TraceJob(job_id="1", job_type="a", total_steps=1.0, labels={"x": object()})  # type: ignore[dict-item]
    for suffix in ("csv", "jsonl"):
        with pytest.raises(TypeError):
            write_trace(Trace(jobs=(good, bad)), tmp_path / f"t.{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_the_bundled_trace_is_what_its_script_makes_and_fits_the_demonstration():
    table = read_throughputs("bundled")
    trace = read_trace("bundled:small", throughputs=table)
    assert trace.jobs == small_trace().jobs
    assert trace.jobs == read_trace("bundled").jobs
    assert len(trace.jobs) == 60
    assert max(trace.scale_factors) == 4
    assert {j.entity for j in trace.jobs} == {"vision", "language", "products"}
    for job in trace.jobs:
        assert table.steps_per_s(job.job_type, job.scale_factor, "a100") > 0


@pytest.mark.data
@pytest.mark.parametrize("where", ["gavel/traces/*", "shockwave/*.trace", "msr-itp/*.csv"])
def test_every_shared_trace_is_readable(shared_data: Path, where: str):
    name = shared_data / "gavel" / "simulation_throughputs.json"
    table = read_throughputs(name, derive_counts=where.startswith("msr"))
    paths = sorted(shared_data.glob(where))
    assert paths
    for path in paths:
        trace = read_trace(path, throughputs=table)
        lines = path.read_text().splitlines()
        assert len(trace.jobs) == len(lines) - (path.suffix == ".csv")


@pytest.mark.data
def test_a_gavel_line_agrees_with_the_raw_file(shared_data: Path):
    path = shared_data / "gavel/traces/sat_multi_n600_rate0.58_seed0.trace"
    job = read_trace(path).jobs[1]
    assert (job.job_type, job.total_steps) == ("Transformer (batch size 16)", 343170.0)
    assert (job.scale_factor, job.arrival_s, job.job_id) == (1, 1686.800503, "1")


@pytest.mark.data
def test_a_line_of_philly_takes_some_dozen_calls_to_read(shared_data: Path, tmp_path, calls_of):
    name = shared_data / "gavel" / "simulation_throughputs.json"
    table = read_throughputs(name, derive_counts=True)
    lines = (shared_data / "philly" / "philly.csv").read_text().splitlines(keepends=True)

    def calls(jobs: int) -> int:
        path = tmp_path / f"{jobs}.csv"
        path.write_text("".join(lines[: jobs + 1]))
        return calls_of(lambda: read_trace(path, throughputs=table))

    # 45 each were counted, with which the whole trace of 82,247 jobs takes three seconds.
    assert (calls(2000) - calls(1000)) / 1000 < 80


@pytest.mark.data
@pytest.mark.long
def test_all_philly_jobs_can_run(shared_data: Path):
    name = shared_data / "gavel" / "simulation_throughputs.json"
    table = read_throughputs(name, derive_counts=True)
    trace = read_trace(shared_data / "philly" / "philly.csv", throughputs=table)
    assert len(trace.jobs) == 82_247
    assert max(trace.scale_factors) == 128
    grown = extend_scale_factors(table, trace.scale_factors)
    kinds = {(j.job_type, j.scale_factor) for j in trace.jobs}
    assert all(grown.steps_per_s(*kind, "v100") > 0 for kind in kinds)


def test_json_lines_are_one_object_each(tmp_path):
    path = tmp_path / "t.jsonl"
    write_trace(Trace(jobs=(TraceJob(job_id="x", job_type="a", total_steps=2.0),)), path)
    assert json.loads(path.read_text()) == {
        "job_id": "x",
        "job_type": "a",
        "total_steps": 2.0,
        "scale_factor": 1,
        "arrival_s": 0.0,
        "weight": 1.0,
        "deadline_s": None,
        "entity": "",
        "max_failures": 3,
        "restart_s": 0.0,
        "labels": {},
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jobs.csv", "arrival_s,duration\n0,60\n"),
        ("jobs.jsonl", '{"arrival_s": 0, "duration": 60}\n'),
    ],
)
def test_a_name_without_its_unit_is_told_the_name_that_is_meant(tmp_path, name, text) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(
        TraceError, match=r"unknown (column|field) \(did you mean 'duration_s'\?\)"
    ) as caught:
        read_trace(path)
    known = str(caught.value).partition("known are ")[2].split(", ")
    assert len(known) == len(set(known))


def test_a_trace_without_the_work_of_its_jobs_is_told_both_columns(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("job_id,job_type,arrival_s\na,A,0\n")
    with pytest.raises(TraceError, match=r":1: .*add total_steps, or duration_s"):
        read_trace(path)
