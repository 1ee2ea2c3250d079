"""Files of a simulation: their figures, their bytes, and what stands in the way of writing."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import tempfile
from dataclasses import replace
from itertools import pairwise

import pytest

from scheduler.errors import InputError
from simulator.report.files import write_result
from simulator.result import Summary
from simulator.staging import MANIFEST, check_replaceable, staged_directory, staged_file


def _rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _bytes(folder):
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def _fail_in_the_middle_of_a_folder(path):
    with staged_directory(path, kind="simulation") as folder:
        (folder / "half").write_text("written")
        raise ZeroDivisionError


def _fail_in_the_middle_of_a_file(path):
    with staged_file(path) as file:
        file.write("half")
        raise ZeroDivisionError


def test_jobs_csv_has_every_job_and_its_average_is_the_summary_s(result_of, tmp_path):
    result = result_of()
    write_result(result, tmp_path / "out")
    rows = _rows(tmp_path / "out" / "jobs.csv")
    assert [row["job_id"] for row in rows] == [job.job_id for job in result.jobs]
    mean = math.fsum(float(row["jct_s"]) for row in rows) / len(rows)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert mean == pytest.approx(summary["average_jct_s"], rel=1e-12)


def test_leases_csv_accounts_for_all_busy_time(result_of, tmp_path):
    result = result_of()
    write_result(result, tmp_path / "out")
    rows = _rows(tmp_path / "out" / "leases.csv")
    busy_s = math.fsum(
        (float(r["end_s"]) - float(r["start_s"])) * len(r["workers"].split()) for r in rows
    )
    workers = len(result.worker_type_of)
    share = busy_s / (result.summary.makespan_s * workers)
    assert share == pytest.approx(result.summary.utilisation)


def test_series_csv_integrates_to_the_same_busy_time(result_of, tmp_path):
    result = result_of()
    write_result(result, tmp_path / "out")
    rows = _rows(tmp_path / "out" / "series.csv")
    busy_s = 0.0
    for row, following in pairwise(rows):
        busy = sum(int(v) for k, v in row.items() if k.startswith("busy_"))
        busy_s += busy * (float(following["time_s"]) - float(row["time_s"]))
    leased_s = math.fsum(lease.end_s - lease.start_s for lease in result.leases)
    assert busy_s == pytest.approx(leased_s)


def test_timings_are_in_no_file(result_of, tmp_path):
    result = result_of()
    slower = replace(result, summary=replace(result.summary, cpu_s=9.0, solve_median_s=8.0))
    write_result(result, tmp_path / "a")
    write_result(slower, tmp_path / "b")
    assert _bytes(tmp_path / "a") == _bytes(tmp_path / "b")
    assert len(_bytes(tmp_path / "a")) == 6


def test_summary_keys_keep_their_order_and_nan_is_null(result_of):
    summary = replace(result_of().summary, rho_max=math.nan, cost_usd=math.inf)
    shown = summary.to_dict()
    assert list(shown)[:5] == ["policy", "cluster", "window", "jobs", "jobs_completed"]
    assert list(shown)[-7:] == [*Summary.TIMINGS, "seed", "profile", "until_s"]
    assert shown["rho_max"] is None
    assert shown["cost_usd"] is None
    assert set(shown) - set(summary.to_dict(timings=False)) == set(Summary.TIMINGS)


def test_a_job_that_never_ran_has_empty_fields(result_of, tmp_path):
    result = result_of(jobs=3)
    never = replace(result.jobs[0], start_s=None, end_s=None, rho=None, status="waiting")
    write_result(replace(result, jobs=(never,)), tmp_path / "out")
    (row,) = _rows(tmp_path / "out" / "jobs.csv")
    assert (row["start_s"], row["end_s"], row["rho"], row["jct_s"]) == ("", "", "", "")
    assert row["measured"] == "true"


def test_an_earlier_result_is_replaced(result_of, tmp_path):
    write_result(result_of(jobs=30), tmp_path / "out")
    write_result(result_of(jobs=5), tmp_path / "out")
    assert len(_rows(tmp_path / "out" / "jobs.csv")) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_empty_folder_is_used(result_of, tmp_path):
    (tmp_path / "out").mkdir()
    write_result(result_of(jobs=3), tmp_path / "out")
    assert (tmp_path / "out" / "jobs.csv").exists()


@pytest.mark.parametrize("beside_a_result", [True, False])
def test_a_folder_with_somebody_s_file_is_refused_and_left_alone(
    result_of, tmp_path, beside_a_result
):
    out = tmp_path / "out"
    out.mkdir()
    if beside_a_result:
        write_result(result_of(jobs=3), out)
    (out / "thesis.tex").write_text("precious")
    before = _bytes(out)
    with pytest.raises(InputError, match=r"out holds thesis\.tex, which Leasehold did not write"):
        write_result(result_of(jobs=4), out)
    assert _bytes(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_manifest_of_another_program_gives_no_right_to_replace(result_of, tmp_path):
    (tmp_path / MANIFEST).write_text('{"program": "other", "files": ["a"]}')
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match="holds a, which"):
        write_result(result_of(jobs=3), tmp_path)


def test_a_file_in_the_place_of_the_folder_is_refused(result_of, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="is a file"):
        write_result(result_of(jobs=3), tmp_path / "out")


def test_a_failure_while_writing_leaves_the_earlier_result(result_of, tmp_path):
    out = tmp_path / "out"
    write_result(result_of(jobs=3), out)
    before = _bytes(out)
    with pytest.raises(ZeroDivisionError):
        _fail_in_the_middle_of_a_folder(out)
    assert _bytes(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_failure_while_writing_a_file_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        _fail_in_the_middle_of_a_file(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_staged_file_has_the_permissions_of_any_other(tmp_path):
    with staged_file(tmp_path / "staged") as file:
        file.write("x")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "staged").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"cannot write .*report"),
        staged_file(tmp_path / "file" / "report.html"),
    ):
        pass
    with pytest.raises(InputError, match="is a folder"), staged_file(tmp_path):
        pass


def test_a_folder_that_cannot_be_written_is_found_before_the_run(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file/out: Not a directory"):
        check_replaceable(tmp_path / "file" / "out")
    check_replaceable(tmp_path / "new" / "deeper" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing is left"

    def refuse(**_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)  # root may write everywhere else
    with pytest.raises(InputError, match="Read-only file system; name a place"):
        check_replaceable(tmp_path / "out")
