"""Small soak tests; the full ones are run by hand, see ``soak.py``."""

import subprocess
import sys
from pathlib import Path

import pytest

from leasehold_testing.postgres import PrivatePostgres


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_whatever_fails_every_job_completes_once(database, tmp_path):
    if database == "postgresql" and PrivatePostgres.find_programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    size = ["--seed", "1", "--jobs", "30", "--agents", "3", "--minutes", "0.6"]
    script = Path(__file__).with_name("soak.py")
    done = subprocess.run(
        [sys.executable, script, *size, "--database", database, "--keep", tmp_path / "kept"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
