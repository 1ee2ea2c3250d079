"""Limits of an uploaded tree; its author is not trusted."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from leasehold.cli.jobspec.packing import pack
from scheduler import archive
from scheduler.archive import check_tree, digest_of, unpack_tree
from scheduler.errors import InputError


def member(name, content=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tree(*members, **options):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", **options) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def test_what_was_packed_is_unpacked(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "pkg" / "empty").mkdir(parents=True)
    (folder / "train.py").write_text("x")
    (folder / "pkg" / "run.sh").write_text("y")
    (folder / "pkg" / "run.sh").chmod(0o755)
    (folder / "again.py").symlink_to("train.py")
    out.mkdir()
    unpack_tree(pack(folder), out)
    found = {path.relative_to(out).as_posix() for path in out.rglob("*")}
    assert found == {"train.py", "again.py", "pkg", "pkg/run.sh", "pkg/empty"}
    assert (out / "again.py").read_text() == "x"
    assert not (out / "again.py").is_symlink()
    assert (out / "pkg" / "run.sh").stat().st_mode & 0o111
    assert not (out / "train.py").stat().st_mode & 0o111


def test_the_same_files_have_the_same_hash_whenever_they_were_written(tmp_path):
    hashes = set()
    for name, time_s in (("a", 1), ("b", 2_000_000_000)):
        (tmp_path / name).mkdir()
        for file in ("one", "two") if name == "a" else ("two", "one"):
            (tmp_path / name / file).write_text(file)
            import os

            os.utime(tmp_path / name / file, (time_s, time_s))
        hashes.add(digest_of(pack(tmp_path / name)))
    assert len(hashes) == 1


def test_what_is_left_out(tmp_path):
    for name in (".git/x", "__pycache__/y", "data/big", "deep/data/kept", "a.log", "deep/a.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".leaseholdignore").write_text("# large\n*.log\n")
    (tmp_path / "out").mkdir()
    packed = pack(tmp_path, ["out", "./data".removeprefix("./") + "/*", "deep/a.log"])
    unpack_tree(packed, tmp_path / "out")
    found = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*")}
    assert found == {".leaseholdignore", "data", "deep", "deep/data", "deep/data/kept"}


@pytest.mark.parametrize(
    ("target", "said"), [("/etc/passwd", "is a link out"), ("nowhere", "cannot be read")]
)
def test_links_that_lead_away_are_not_packed(tmp_path, target, said):
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(InputError, match=said):
        pack(tmp_path)


def test_what_is_no_folder_or_too_much_is_not_packed(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="is no folder"):
        pack(tmp_path / "absent")
    monkeypatch.setattr("leasehold.cli.jobspec.packing.MOST_ENTRIES", 1)
    for name in "ab":
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="holds more than 1 files"):
        pack(tmp_path)


HOSTILE = {
    "leads up": tree(member("../x")),
    "leads up in the middle": tree(member("a/../../x")),
    "is absolute": tree(member("/etc/x")),
    "is a link out": tree(member("a", type=tarfile.SYMTYPE, linkname="/etc")),
    "is a link within": tree(member("a", type=tarfile.SYMTYPE, linkname="b")),
    "is a hard link": tree(member("a", type=tarfile.LNKTYPE, linkname="/etc/passwd")),
    "is a device": tree(member("a", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "is a pipe": tree(member("a", type=tarfile.FIFOTYPE)),
    "is there twice": tree(member("a", b"1"), member("a", b"2")),
    "is a file and a folder": tree(member("a", b"1"), member("a/b", b"2")),
    "is a folder and a file": tree(member("a/b", b"1"), member("a", b"2")),
    "has a long name": tree(member("a/" * 500 + "a", b"1")),
    "has a name that Linux does not take": tree(member("\N{EURO SIGN}" * 86, b"1")),
    "is the folder itself": tree(member(".", b"1")),
    "is sparse": tree(
        member("a", b"", pax_headers={"GNU.sparse.size": str(2**50), "GNU.sparse.map": "0,0"}),
        format=tarfile.PAX_FORMAT,
    ),
    "is no tar file": gzip.compress(b"x" * 2000),
    "is not packed": b"x" * 2000,
    "is cut off": tree(member("a", bytes(range(256)) * 99))[:-30],
    "is nothing": b"",
    "tells too much": tree(
        member("a", b"1", pax_headers={"comment": "x" * 70_000}), format=tarfile.PAX_FORMAT
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_tree_with_something_that_does_not_belong_there_is_refused(tmp_path, what):
    with pytest.raises(InputError, match="the upload"):
        check_tree(HOSTILE[what])
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="the upload"):
        unpack_tree(HOSTILE[what], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert list((tmp_path / "out").iterdir()) == []


def test_a_bomb_is_read_no_further_than_a_tree_may_go(monkeypatch):
    monkeypatch.setattr(archive, "MOST_UNPACKED_BYTES", 10_000)
    monkeypatch.setattr(archive, "MOST_ENTRIES", 20)
    check_tree(tree(member("a", bytes(10_000))))
    for bomb in (
        tree(member("a", bytes(10_001))),
        tree(*(member(f"a{n}", bytes(1000)) for n in range(11))),
        tree(*(member(f"a{n}") for n in range(21))),
        tree(member("a", pax_headers={"comment": "x" * 200_000}), format=tarfile.PAX_FORMAT),
    ):
        with pytest.raises(InputError, match=r"unpacks to more than|bytes of metadata"):
            check_tree(bomb)


def test_heads_upon_heads_are_refused():
    head = tarfile.TarInfo("a")
    head.type = tarfile.GNUTYPE_LONGNAME
    with pytest.raises(InputError, match="the upload"):
        check_tree(gzip.compress(head.tobuf() * 5000))
