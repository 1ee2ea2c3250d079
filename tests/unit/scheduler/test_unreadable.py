"""Why a file cannot be read is told in words: no numbers of errors, no bytes."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from agent.link.http_link import tls_context
from leasehold.cli.reading.spec_files import read_jobs
from leasehold.config.secret_files import read_secret
from leasehold.connection import SettingsError, find_connection
from scheduler.errors import InputError
from scheduler.secret_box import KeyFile
from scheduler.unreadable import why_unreadable
from traces import read_throughputs

if TYPE_CHECKING:
    from pathlib import Path


def _token(path: Path) -> object:
    return find_connection(token_file=str(path), environment={"HOME": "/nowhere"})


READERS = {
    "secret": lambda path: read_secret(path, "token"),
    "keys": lambda path: KeyFile(path)(),
    "jobs": lambda path: read_jobs(str(path)),
    "certificates": tls_context,
    "token": _token,
    "table": read_throughputs,
}
TEXTS = READERS.keys() - {"keys", "certificates"}


def said_by(reader: str, path: Path) -> str:
    with pytest.raises((InputError, SettingsError)) as caught:
        READERS[reader](path)
    return str(caught.value)


@pytest.mark.parametrize("reader", sorted(READERS))
def test_a_folder_is_named_without_the_number_of_the_error(reader, tmp_path):
    said = said_by(reader, tmp_path)
    assert "Is a directory" in said
    assert "Errno" not in said


@pytest.mark.parametrize("reader", sorted(TEXTS))
def test_a_file_without_text_is_named_without_its_bytes(reader, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"\xbb\x00\xff\xfe")
    said = said_by(reader, path)
    assert "not UTF-8 text" in said
    assert all(part not in said for part in ("codec", "0xbb", r"\xbb"))


def test_a_compressed_file_is_to_be_unpacked(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"job_type,scale_factor,worker_type,steps_per_s"))
    assert said_by("table", path) == f"{path}:1: this is a gzip file; unpack it"


def test_an_error_without_words_of_the_system_keeps_its_own():
    assert why_unreadable(OSError("the pipe is gone")) == "the pipe is gone"
