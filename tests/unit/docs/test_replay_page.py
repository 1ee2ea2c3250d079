"""The page about replays, from an empty folder: its files, its command, its output."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from leasehold.cli.main import app

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "replay-your-configuration.md"


def test_the_replay_of_the_page_prints_what_the_page_shows(tmp_path, monkeypatch):
    text = PAGE.read_text(encoding="utf-8")
    for name, kind in (("leasehold.toml", "toml"), ("projects.yaml", "yaml"), ("trace.csv", "csv")):
        (content,) = re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)
        (tmp_path / name).write_text(content)
    (command,) = re.findall(r"^\$ leasehold (.*?)\n```", text, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    ran = CliRunner().invoke(app, shlex.split(command.replace("\\\n", "")))
    assert ran.exit_code == 0, ran.exception
    shown = [line for line in text.splitlines() if line.startswith("│")]
    assert len(shown) > 10
    assert [line for line in shown if line not in ran.stdout.splitlines()] == []

    with (tmp_path / "replayed" / "jobs.csv").open(newline="") as file:
        jobs = {row["job_id"]: row for row in csv.DictReader(file)}
    assert round(float(jobs["prepare"]["end_s"])) == 1818
    ends = sorted(float(jobs[f"train-{letter}"]["end_s"]) for letter in "abc")
    assert round(ends[-1] - ends[0]) == 650
    assert jobs["tts"]["status"] == "failed"
    with (tmp_path / "replayed" / "leases.csv").open(newline="") as file:
        (lease,) = [row for row in csv.DictReader(file) if row["job_id"] == "tts"]
    assert float(lease["end_s"]) - float(lease["start_s"]) == 7200
    for figure in ("1,818 s", "650 s", "8,400 s", "7,200 s"):
        assert figure in text
