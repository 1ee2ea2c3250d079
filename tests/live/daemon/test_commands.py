"""``serve`` and ``up`` as they are typed, within the test's process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time

import pytest

from leasehold.cli.main import main


@pytest.fixture
def quiet():
    """Put logging back as it was."""
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    level = root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture
def leasehold(monkeypatch, tmp_path, capsys, quiet):
    """Type a command and, as soon as it serves, Ctrl-C; gives (exit code, stderr)."""
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def interrupt():
        end = time.monotonic() + 60
        while not (state / "admin.token").exists() and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    def type_in(*arguments, stop=True):
        monkeypatch.setattr(sys, "argv", ["leasehold", *arguments, f"--state-dir={state}"])
        handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
        thread = threading.Thread(target=interrupt)
        if stop:
            thread.start()
        try:
            code = main()
        except SystemExit as end:
            code = end.code
        finally:
            if stop:
                thread.join()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return code or 0, capsys.readouterr().err

    return type_in


def test_serve_says_where_it_listens_and_stops_at_ctrl_c(leasehold):
    code, err = leasehold("serve", "--port=0", "--policy=alpha_fairness", "--param=alpha=2")
    assert code == 0
    assert "listens on http://127.0.0.1:" in err
    assert "policy  alpha_fairness alpha=2" in err
    assert "SIGINT: stopping" in err


def test_a_file_and_a_flag_with_a_setting_that_is_gone_are_warned_of(leasehold, tmp_path):
    file = tmp_path / "old.toml"
    file.write_text("[engine]\nstay = true\n")
    code, err = leasehold("serve", "--port=0", f"--config={file}", "--set=engine.stay=false")
    assert code == 0
    assert f"{file}: engine.stay: 'engine.stay' is no setting any more" in err
    assert "--set engine.stay: 'engine.stay' is no setting any more" in err
    assert "listens on http://127.0.0.1:" in err


def test_up_says_what_to_type_next(leasehold):
    code, err = leasehold("up", "--port=0", "--worker=v100:1", "--node=laptop")
    assert code == 0
    assert "leasehold submit -C . -- python train.py" in err


def test_a_database_that_is_away_is_a_line_and_a_code(leasehold):
    database = "--db=postgresql://me@127.0.0.1:1/none"
    code, err = leasehold("serve", "--port=0", database, "--set=store.wait_s=0", stop=False)
    assert code == 1
    assert err.startswith("leasehold: the database cannot be used now")
    assert err.count("\n") == 1
    code, err = leasehold("serve", "--port=0", database, "--set=store.wait_s=0.4", stop=False)
    assert code == 1
    first, last = err.splitlines()
    assert "; trying again in 0." in first
    assert last.endswith("(waited 0.4 s for it: store.wait_s)")


def test_migrate_makes_the_schema_that_a_daemon_without_migrations_asks_for(leasehold, tmp_path):
    from scheduler.errors import StoreVersionError
    from scheduler.store.sql.store import SqlStore

    url = f"sqlite:///{tmp_path}/leasehold.db"
    with pytest.raises(StoreVersionError):
        SqlStore.open(url, migrate=False)
    for _ in range(2):  # a second time changes nothing
        code, said = leasehold("migrate", "--db", url, stop=False)
        assert code == 0
        assert "is up to date" in said
    SqlStore.open(url, migrate=False).close()
