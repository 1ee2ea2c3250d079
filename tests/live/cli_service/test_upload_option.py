"""``--upload``: packed files, files left out, and the same files are sent once."""

from __future__ import annotations

import gzip
import io
import random
import tarfile

import pytest

from leasehold.cli.jobspec.packing import IGNORE_FILE, pack
from scheduler.errors import InputError


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "code"
    (folder / "lib" / "__pycache__").mkdir(parents=True)
    (folder / "data").mkdir()
    for name in ("train.py", "lib/model.py", "lib/__pycache__/model.pyc", "data/big.bin", "a.tmp"):
        (folder / name).write_text(name)
    (folder / "train.py").chmod(0o755)
    (folder / "again.py").symlink_to("train.py")
    (folder / IGNORE_FILE).write_text("# large\ndata/\n\n")
    return folder


def test_the_same_files_are_packed_alike_and_others_left_out(tree):
    packed = pack(tree, ["*.tmp"])
    assert pack(tree, ["*.tmp"]) == packed
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
        names = {info.name: info.mode for info in tar}
    assert set(names) == {IGNORE_FILE, "again.py", "lib", "lib/model.py", "train.py"}
    assert names["train.py"] == names["again.py"] == 0o755
    assert names["lib/model.py"] == 0o644
    assert pack(tree, ["*.tmp", "lib/model.py"]) != packed


def test_what_cannot_be_sent_is_named(tree, tmp_path):
    with pytest.raises(InputError, match="is no folder"):
        pack(tree / "train.py")
    (tree / "out").symlink_to(tmp_path)
    with pytest.raises(InputError, match="leave it out with --exclude out"):
        pack(tree)
    assert pack(tree, ["out"])
    (tree / IGNORE_FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        pack(tree, ["out"])


def test_a_job_starts_in_what_was_sent(scheduler, leasehold, tree):
    ran = leasehold(
        "submit", "--name", "t", "-C", tree, "--upload", "--exclude", "*.tmp", "--", "ls"
    )
    assert ran.code == 0, ran.err
    first, more = (
        ran.out.strip(),
        leasehold("submit", "-C", tree, "--upload", "--", "ls").out.strip(),
    )
    specs = [scheduler.service.store.job(job).spec for job in (first, more)]
    assert all(len(spec["upload"]) == 64 for spec in specs)
    assert specs[0]["upload"] != specs[1]["upload"]
    assert not specs[0].get("working_dir")


def test_code_that_is_too_large_for_any_request_says_what_to_do(scheduler, leasehold, tree):
    (tree / "model.bin").write_bytes(random.Random(1).randbytes(9_000_000))
    ran = leasehold("submit", "-C", tree, "--upload", "--", "ls")
    assert ran.code == 2
    assert "code packs to 8.6 MiB, which is too large" in ran.err
    assert f"leave files out with --exclude or {IGNORE_FILE}" in ran.err


def test_what_is_left_out_needs_something_that_is_sent(scheduler, leasehold):
    ran = leasehold("submit", "--exclude", "*.tmp", "--", "ls")
    assert ran.code != 0
    assert "--exclude is about --upload" in ran.err
