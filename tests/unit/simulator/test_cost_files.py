"""Overhead and failure files: their meaning, and messages that name key and value."""

import math

import numpy as np
import pytest

from scheduler.errors import InputError
from simulator.world.failures import FailureModel, FailureProcess, read_failures
from simulator.world.overheads import Overhead, read_overheads


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "file.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_no_overheads_cost_nothing():
    assert read_overheads("none").of("anything").restart_s == 0.0


def test_the_bundled_overheads_are_realistic():
    overhead = read_overheads("default").of("ResNet-50 (batch size 64)")
    assert 10 <= overhead.restart_s <= 120
    assert min(overhead.launch_s, overhead.checkpoint_s, overhead.restore_s) > 0


def test_an_overhead_is_found_by_job_type_then_by_model_then_by_default(file):
    overheads = read_overheads(
        file(
            "default: {launch_s: 1}\n"
            "job_types:\n"
            "  LM: {launch_s: 2}\n"
            "  LM (batch size 80): {launch_s: 3, checkpoint_s: 4, restore_s: 5}\n"
        )
    )
    assert overheads.of("LM (batch size 80)") == Overhead(launch_s=3, checkpoint_s=4, restore_s=5)
    assert overheads.of("LM (batch size 5)").launch_s == 2
    assert overheads.of("Transformer (batch size 5)").launch_s == 1


def test_an_overhead_may_differ_on_some_workers(file):
    overhead = read_overheads(
        file(
            "default:\n"
            "  launch_s: 20\n"
            "  restore_s: 5\n"
            "  workers:\n"
            "    k80: {launch_s: 60}\n"
            "    k80:8: {launch_s: 300, checkpoint_s: 1}\n"
        )
    ).of("anything")
    assert overhead.there("v100", 8).restart_s == 25.0
    assert overhead.there("k80", 1) == Overhead(launch_s=60, restore_s=5)
    assert overhead.there("k80", 8) == Overhead(launch_s=300, restore_s=5, checkpoint_s=1)
    assert overhead.restarts == {"k80": 65.0, "k80:8": 306.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default: {workers: {k80: {launch_s: -1}}}", r"'default\.workers\.k80\.launch_s' is -1"),
        (
            "default: {workers: {k80: {workers: {}}}}",
            r"entry 'default\.workers\.k80' is \{'workers': \{\}\}; give",
        ),
        ("default: {workers: [k80]}", r"'default\.workers' must map worker types"),
        ("default: {launch_s: -1}", r"'default\.launch_s' is -1; it must be a number of seconds"),
        ("default: {launch_s: soon}", r"'default\.launch_s' is 'soon'"),
        ("default: {launch_s: true}", r"'default\.launch_s' is True"),
        ("default: {launch_s: .nan}", r"'default\.launch_s' is nan"),
        ("default: {boot_s: 1}", r"entry 'default' is \{'boot_s': 1\}; give launch_s"),
        ("job_types: {LM: 5}", "entry 'LM' is 5"),
        ("job_types: [LM]", "'job_types' must map job types"),
        ("defaults: {}", "give 'default' and 'job_types', nothing else"),
        ("[1, 2]", "give 'default' and 'job_types', nothing else"),
        ("{", "the YAML is malformed"),
    ],
)
def test_a_wrong_overhead_names_key_and_value(file, text, message):
    with pytest.raises(InputError, match=message):
        read_overheads(file(text))


def test_a_missing_overhead_file_is_named(tmp_path):
    with pytest.raises(
        InputError, match=r"overhead file \S*nowhere\.yaml: cannot be read.*none and default"
    ):
        read_overheads(str(tmp_path / "nowhere.yaml"))


def test_without_a_file_nothing_fails():
    model = read_failures(None)
    assert model == FailureModel()
    process = FailureProcess(model, 4, np.random.default_rng(0))
    assert process.next_s == process.draw_job_failure_s() == math.inf
    assert process.speed.tolist() == [1.0] * 4


def test_a_failure_file_sets_the_fields_of_the_model(file):
    model = read_failures(file("mtbf_s: 100\nrepair_s: 5\nstraggler_share: 0.25\n"))
    assert model == FailureModel(mtbf_s=100.0, repair_s=5.0, straggler_share=0.25)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mtbf_s: 0", "'mtbf_s' is 0; it must be above 0"),
        ("repair_s: -5", "'repair_s' is -5"),
        ("straggler_share: 1.5", r"'straggler_share' is 1\.5; it must be .* at most 1"),
        ("straggler_speed: fast", "'straggler_speed' is 'fast'"),
        ("job_mtbf_s: true", "'job_mtbf_s' is True"),
        ("checkpoint_interval_s: .nan", "'checkpoint_interval_s' is nan"),
        ("mtbf: 3", "unknown key 'mtbf'; known are mtbf_s"),
        ("- 3", "give a mapping with mtbf_s"),
        ("{", "file .*: the YAML is malformed"),
    ],
)
def test_a_wrong_failure_names_key_and_value(file, text, message):
    with pytest.raises(InputError, match=message):
        read_failures(file(text))


#: Nine merges of nine merges, eight levels deep: a kilobyte that stands for 43 million entries.
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n + 1}: &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 9)}]}}\n" for n in range(8)
)


@pytest.mark.parametrize("read", [read_overheads, read_failures])
@pytest.mark.parametrize(
    ("text", "message"),
    [(MERGED, "stands for more than"), ("[" * 3000, "nested too deeply"), ("a: 1\na: 2", "twice")],
)
def test_a_file_that_is_a_trap_is_refused_at_once(file, read, text, message):
    with pytest.raises(InputError, match=message):
        read(file(text))


def test_workers_fail_and_return_in_turns_at_the_stated_means():
    model = FailureModel(mtbf_s=1000.0, repair_s=100.0, straggler_share=0.3, job_mtbf_s=50.0)
    process = FailureProcess(model, 100, np.random.default_rng(1))
    assert process.speed.mean() == pytest.approx(1 - 0.3 * 0.5, abs=0.05)
    down = dict.fromkeys(range(100), False)
    lost_at, up_s, down_s = {}, [], []
    back_at = dict.fromkeys(range(100), 0.0)
    while process.next_s < 100_000.0:
        at_s = process.next_s
        worker, lost = process.pop()
        assert lost is not down[worker]
        down[worker] = lost
        if lost:
            up_s.append(at_s - back_at[worker])
            lost_at[worker] = at_s
        else:
            down_s.append(at_s - lost_at[worker])
            back_at[worker] = at_s
    assert np.mean(up_s) == pytest.approx(1000.0, rel=0.05)
    assert np.mean(down_s) == pytest.approx(100.0, rel=0.05)
    drawn = [process.draw_job_failure_s() for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(50.0, rel=0.05)
