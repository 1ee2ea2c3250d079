"""``leasehold config`` as it is typed."""

from __future__ import annotations

import json
import sys

import pytest

from leasehold.cli.main import main
from leasehold.config.show import reference_tables


@pytest.fixture
def leasehold(monkeypatch, tmp_path, capsys):
    """Run a command line; gives (exit code, stdout, stderr)."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["leasehold", *arguments])
        try:
            code = main()
        except SystemExit as end:
            code = end.code
        return code or 0, *capsys.readouterr()

    return run


def test_show_prints_values_and_origins_without_passwords(leasehold, tmp_path, monkeypatch):
    file = tmp_path / "a.toml"
    file.write_text("[server]\nport = 7\n[retention]\nhistory_days = inf\n")
    monkeypatch.setenv("LEASEHOLD_STORE__URL", "postgresql://me:hunter2@h/d")
    code, out, _ = leasehold("config", "show", "--config", str(file))
    assert code == 0
    line = next(line for line in out.splitlines() if "server.port" in line)
    assert line.split() == ["server.port", "7", str(file)]
    assert "hunter2" not in out
    _, out, _ = leasehold("config", "show", "--config", str(file), "--json")
    shown = json.loads(out)
    assert shown["server.port"] == {"value": 7, "origin": str(file)}
    assert shown["retention.history_days"]["value"] == "inf"
    assert shown["store.url"]["value"] == "postgresql://me:***@h/d"


def test_check_lists_everything_that_is_wrong(leasehold, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("[server]\nprot = 7\nport = 'x'\n")
    code, _, err = leasehold("config", "check", str(file))
    assert code == 2
    assert err.splitlines()[0] == "leasehold: the configuration has 2 problems:"
    assert len(err.splitlines()) == 3
    file.write_text("[server]\nport = 7\n")
    code, _, err = leasehold("config", "check", str(file))
    assert (code, err) == (0, f"{file} is in order\n")


def test_reference_prints_the_page(leasehold):
    assert leasehold("config", "reference") == (0, reference_tables(), "")


def test_check_warns_of_a_setting_that_is_gone(leasehold, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("[engine]\nstay = false\n")
    code, _, err = leasehold("config", "check", str(file))
    assert code == 0
    assert err.startswith(f"leasehold: warning: {file}: engine.stay: 'engine.stay' is no setting")
    assert err.endswith(f"{file} is in order\n")
