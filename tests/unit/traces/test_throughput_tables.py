"""Throughput tables: formats, round trips, and messages about bad ones."""

import json
from pathlib import Path

import pytest
import roofline
from hypothesis import given
from hypothesis import strategies as st

from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError, TraceError
from traces import bundled, extend_scale_factors, read_throughputs, write_throughputs
from traces.tables.reference import reference_worker_type

GAVEL = {
    "v100": {
        "('A', 1)": {"null": 10.0, "('B', 1)": [6.0, 3.0]},
        "('B', 1)": {"null": 5, "('A', 1)": [3.0, 6.0]},
        "('A', 2)": {"null": 19.5},
    },
    "k80": {"('A', 1)": {"null": 2.0}, "('B', 1)": {"null": 0.0}},
    "v100_unconsolidated": {"('A', 2)": {"null": 12.0}},
}


def test_gavels_json_is_read_by_content(write):
    table = read_throughputs(write("anything.txt", json.dumps(GAVEL)))
    assert table.worker_types == ("k80", "v100")
    assert table.isolated["A", 1] == {"v100": 10.0, "k80": 2.0}
    assert table.steps_per_s("B", 1, "k80") == 0.0
    assert table.shared[("A", 1), ("B", 1)] == {"v100": (6.0, 3.0)}
    assert table.shared[("B", 1), ("A", 1)] == {"v100": (3.0, 6.0)}


def test_unconsolidated_worker_types_are_kept_on_request(write):
    table = read_throughputs(write("t.json", json.dumps(GAVEL)), unconsolidated=True)
    assert table.steps_per_s("A", 2, "v100_unconsolidated") == 12.0


def test_a_pair_that_is_given_in_one_order_is_known_in_both(write):
    data = {"v100": {"('A', 1)": {"null": 1.0, "('B', 1)": [0.6, 0.7]}, "('B', 1)": {"null": 1.0}}}
    table = read_throughputs(write("t.json", json.dumps(data)))
    assert table.shared[("B", 1), ("A", 1)]["v100"] == (0.7, 0.6)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"v100": 3}, "v100", 3),
        ({"v100": {"A": {"null": 1.0}}}, "v100 / A", "A"),
        ({"v100": {"('A', 0)": {"null": 1.0}}}, "v100 / ('A', 0)", "('A', 0)"),
        ({"v100": {"('A', 1)": {"null": -1.0}}}, "v100 / ('A', 1) / null", -1.0),
        ({"v100": {"('A', 1)": {"null": True}}}, "v100 / ('A', 1) / null", True),
        ({"v100": {"('A', 1)": {"null": "x"}}}, "v100 / ('A', 1) / null", "x"),
        ({"v100": {"('A', 1)": {}}}, "v100 / ('A', 1)", None),
        (
            {"v100": {"('A', 1)": {"null": 1, "('A', 1)": [1]}}},
            "v100 / ('A', 1) / ('A', 1)",
            [1],
        ),
        ({}, None, None),
    ],
)
def test_a_malformed_gavel_table_names_place_and_value(write, change, field, value):
    path = write("t.json", json.dumps(change, indent=1))
    with pytest.raises(TraceError) as caught:
        read_throughputs(path)
    assert (caught.value.path, caught.value.field, caught.value.value) == (str(path), field, value)


def test_a_malformed_gavel_table_names_the_line(write):
    data = {"v100": {"('A', 1)": {"null": 1.0}, "('B', 1)": {"null": -2.0}}}
    path = write("t.json", json.dumps(data, indent=1))
    with pytest.raises(TraceError, match=r"t\.json:7: .*value -2\.0"):
        read_throughputs(path)


def test_corrupt_json_names_the_line(write):
    with pytest.raises(TraceError, match=r"t\.json:2: the JSON is corrupt"):
        read_throughputs(write("t.json", '{"v100":\n {"x" 1}}'))


def test_a_native_table_that_is_written_is_read_back_equal(table, tmp_path):
    path = tmp_path / "t.csv"
    write_throughputs(table, path)
    assert read_throughputs(path) == table
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


names = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=8)
speeds = st.floats(min_value=0, max_value=1e9)


rows = st.dictionaries(names, speeds, min_size=1)


@given(st.dictionaries(st.tuples(names, st.integers(1, 64)), rows, min_size=1, max_size=4))
def test_any_table_survives_the_round_trip(tmp_path_factory, isolated):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    known = ThroughputTable(isolated=isolated, source="made up")
    write_throughputs(known, path)
    assert read_throughputs(path) == known


HEADER = "job_type,scale_factor,worker_type,steps_per_s"
PAIRS = HEADER + ",with_job_type,with_scale_factor,with_steps_per_s"


@pytest.mark.parametrize(
    ("text", "line", "field", "value"),
    [
        ("job_type,scale_factor\na,1", 1, "worker_type", "job_type,scale_factor"),
        (HEADER + ",colour\na,1,v100,2,red", 1, "colour", None),
        (HEADER + "\na,1,v100,2\nb,x,v100,2", 3, "scale_factor", "x"),
        (HEADER + "\na,0,v100,2", 2, "scale_factor", "0"),
        (HEADER + "\na,1,v100,-2", 2, "steps_per_s", "-2"),
        (HEADER + "\na,1,v100,nan", 2, "steps_per_s", "nan"),
        (HEADER + "\n,1,v100,2", 2, "job_type", ""),
        (HEADER + "\na,1,,2", 2, "worker_type", ""),
        (HEADER + "\na,1,v100", 2, None, "a | 1 | v100"),
        (HEADER + "\na,1,v100,2\na,1,v100,3", 3, "job_type", None),
        (PAIRS + "\na,1,v100,2,,,\na,1,v100,1,a,1,1\na,1,v100,1,a,1,1", 4, "job_type", None),
        (PAIRS + "\na,1,v100,2,,,\na,1,v100,1,c,1,1", None, "with_job_type", ("c", 1)),
        ("# only\n" + HEADER + "\n", None, None, None),
    ],
)  # fmt: skip
def test_a_malformed_native_table_names_file_line_field_and_value(write, text, line, field, value):
    path = write("t.csv", text)
    with pytest.raises(TraceError) as caught:
        read_throughputs(path)
    error = caught.value
    assert (error.path, error.line, error.field, error.value) == (str(path), line, field, value)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (
            HEADER + "ec",
            r"t\.csv:1: field 'steps_per_sec': unknown column .did you mean 'steps_per_s'",
        ),
        ("a,b,c,d", "column 'job_type' is missing"),
        (HEADER + ",colour", "field 'colour': unknown column; a throughput table is"),
        (HEADER + ",with_job_type", "columns differ in number or order"),
        ("scale_factor,job_type,worker_type,steps_per_s", "columns differ in number or order"),
    ],
)
def test_a_wrong_header_is_refused_with_the_nearest_column(write, header, said):
    with pytest.raises(TraceError, match=said):
        read_throughputs(write("t.csv", f"{header}\na,1,v100,2"))


def test_spaces_around_columns_do_no_harm(write):
    table = read_throughputs(write("t.csv", HEADER.replace(",", ", ") + "\na,1,v100,2"))
    assert table.isolated == {("a", 1): {"v100": 2.0}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"a,b\n\xff\xfe,1", "not UTF-8"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_text_is_refused(write, tmp_path, content, said):
    path = tmp_path / "missing.csv" if content is None else write("t.csv", content)
    with pytest.raises(TraceError, match=said):
        read_throughputs(path)


def test_nothing_half_written_is_left_when_writing_fails(table, tmp_path, write):
    path = write("t.csv", "as it was")

    class Broken(dict):
        def items(self):
            yield ("a", 1), {"v100": 1.0}
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        write_throughputs(ThroughputTable(isolated=Broken()), path)
    assert path.read_text() == "as it was"
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]
    with pytest.raises(TraceError, match="cannot be written"):
        write_throughputs(table, tmp_path / "no such folder" / "t.csv")


def test_larger_gangs_are_extrapolated_from_the_largest_known(table):
    grown = extend_scale_factors(table, [1, 4, 8, 3])
    # a: 18 at 2 workers on v100; 4 workers are one doubling on, 8 two.
    assert grown.steps_per_s("a", 4, "v100") == pytest.approx(18 * 2 * 0.9)
    assert grown.steps_per_s("a", 8, "v100") == pytest.approx(18 * 4 * 0.81)
    assert grown.steps_per_s("a", 8, "k80") == pytest.approx(4 * 4 * 0.81)
    # b: 4 at 1 and 12 at 4 on v100, so 3 workers stand on the line between; it never runs on k80.
    assert grown.steps_per_s("b", 3, "v100") == pytest.approx(4 + 8 * 2 / 3)
    assert grown.steps_per_s("b", 8, "k80") == 0.0


def test_known_rows_and_types_that_do_not_distribute_stay_as_they_are(table):
    grown = extend_scale_factors(table, [2, 8])
    assert ("solo", 8) not in grown.isolated
    assert {k: grown.isolated[k] for k in table.isolated} == table.isolated
    assert grown.shared == table.shared
    assert extend_scale_factors(grown, [2, 8]) is grown


def test_a_table_without_gangs_extends_every_type_and_one_without_1_scales_down():
    ones = ThroughputTable(isolated={("a", 1): {"x": 3.0}})
    grown = extend_scale_factors(ones, [4], efficiency_per_doubling=1.0)
    assert grown.steps_per_s("a", 4, "x") == 12.0
    fours = ThroughputTable(isolated={("a", 4): {"x": 12.0, "y": 0.0}})
    assert extend_scale_factors(fours, [2]).isolated["a", 2] == {"x": 6.0}


def test_zeros_decide_at_the_counts_beside_them():
    table = ThroughputTable(
        isolated={
            ("a", 1): {"v": 1.0, "k": 0.5},
            ("a", 4): {"v": 4.0, "k": 0.0, "m": 0.0},
            ("a", 8): {"v": 8.0, "m": 4.0},
        }
    )
    grown = extend_scale_factors(table, [2, 16])
    assert grown.isolated["a", 16].keys() == {"v", "m"}
    assert grown.isolated["a", 2].keys() == {"v", "k"}  # m needs the memory of more workers
    assert grown.steps_per_s("a", 16, "m") == pytest.approx(4 * 2 * 0.9)


def test_a_type_without_a_row_at_a_count_does_not_run_there_or_beside_it():
    table = ThroughputTable(isolated={("a", 1): {"v": 1.0, "k": 0.5}, ("a", 4): {"v": 4.0}})
    assert extend_scale_factors(table, [8]).isolated["a", 8].keys() == {"v"}


def test_an_efficiency_out_of_range_is_refused(table):
    with pytest.raises(InputError, match=r"efficiency_per_doubling is 1\.5"):
        extend_scale_factors(table, [2], efficiency_per_doubling=1.5)


def test_the_reference_is_v100_unless_it_runs_few_profiles_or_the_user_says_otherwise(table):
    assert reference_worker_type(table) == "v100"
    assert reference_worker_type(table, "k80") == "k80"
    both = {"t4": 1.0, "h100": 9.0}
    few = ThroughputTable(isolated={("a", 1): {"v100": 1.0, **both}, ("b", 1): both})
    assert reference_worker_type(few) == "h100"
    with pytest.raises(InputError, match="'x9' is not in the throughput table; it knows k80, v100"):
        reference_worker_type(table, "x9")


def test_the_bundled_table_is_what_the_roofline_estimates():
    table = read_throughputs("bundled")
    assert table == roofline.estimate()
    assert table.source.startswith("ESTIMATES, not measurements")
    assert {"t4", "a10g", "v100", "l40s", "a100", "a100-80g", "h100"} == set(table.worker_types)
    assert {n for _, n in table.isolated} == {1, 2, 4, 8}
    # ResNet-50 on a V100 by hand: 64 x 500 MB and 25.6 M x 32 bytes of state at 0.75 x 900 GB/s
    # take 48.6 ms, more than the arithmetic (3 x 64 x 8.2 GFLOP at 0.45 x 125 TFLOP/s: 28.0 ms);
    # with 12 ms of host time 16.5 steps/s.
    assert table.steps_per_s("ResNet-50 (batch size 64)", 1, "v100") == pytest.approx(16.5, 2e-3)


def test_the_bundled_table_knows_only_pairs_that_pay_and_fit():
    table = roofline.estimate()
    for (first, second), row in table.shared.items():
        for worker_type, (mine, others) in row.items():
            together = mine / table.isolated[first][worker_type]
            together += others / table.isolated[second][worker_type]
            assert 0.99 < together <= 1.91
            assert table.shared[second, first][worker_type] == (others, mine)
    llama, dlrm = "Llama 3 8B LoRA (batch size 1, 2048 tokens)", "DLRM (batch size 4096)"
    assert "t4" not in table.shared[(llama, 1), (dlrm, 1)]


def test_an_unknown_bundled_name_lists_what_there_is():
    with pytest.raises(
        InputError, match="nothing is bundled as 'big'; there is small, throughputs"
    ):
        bundled("big")


@pytest.mark.data
@pytest.mark.parametrize("kind", ["simulation", "physical_cluster"])
def test_gavels_table_agrees_with_the_raw_file(shared_data: Path, kind: str, calls_of):
    path = shared_data / "gavel" / f"{kind}_throughputs.json"
    raw = json.loads(path.read_text())
    table = read_throughputs(path)
    # 89,000 were counted, with which it takes a tenth of a second.
    assert calls_of(lambda: read_throughputs(path)) < 150_000
    assert table.worker_types == ("k80", "p100", "v100")
    assert len(table.isolated) == 83
    lm = "LM (batch size 20)"
    for worker_type in table.worker_types:
        for size in (1, 4):
            row = raw[worker_type][f"('{lm}', {size})"]
            assert table.steps_per_s(lm, size, worker_type) == row["null"]
        row = raw[worker_type][f"('{lm}', 1)"]
        for key, both in table.shared.items():
            if key[0] == (lm, 1) and worker_type in both:
                assert list(both[worker_type]) == row[str(key[1])]


@pytest.mark.data
def test_gavels_isolated_csv_agrees_with_its_json(shared_data: Path):
    path = shared_data / "gavel" / "simulation_throughputs.json"
    table = read_throughputs(path, unconsolidated=True)
    lines = (shared_data / "gavel" / "isolated_throughputs.csv").read_text().splitlines()[1:]
    for line in lines:
        job_type, size, worker_type, steps = line.rsplit(",", 3)
        known = table.steps_per_s(job_type.strip('"'), int(size), worker_type)
        assert known == pytest.approx(float(steps))


@pytest.mark.data
def test_shockwaves_table_is_readable(shared_data: Path):
    assert len(read_throughputs(shared_data / "shockwave" / "tacc_throughputs.json").isolated) == 83
