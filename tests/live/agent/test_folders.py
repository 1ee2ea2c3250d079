"""State folders are their owner's alone, also those that were there before."""

import logging
import stat

import pytest

from agent.folders import private_folder


def mode_of(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", [[], ["lock", "leases"]])
def test_a_folder_of_ours_that_others_could_enter_is_closed(tmp_path, content):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    for name in content:
        (folder / name).touch()
    private_folder(folder, marker="lock")
    assert mode_of(folder) == 0o700


def test_a_folder_is_made_with_its_parents(tmp_path):
    private_folder(tmp_path / "a" / "b", marker="lock")
    assert mode_of(tmp_path / "a" / "b") == 0o700


def test_a_folder_that_holds_other_things_keeps_its_mode_with_a_warning(tmp_path, caplog):
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "letters").touch()
    with caplog.at_level(logging.WARNING):
        private_folder(folder, marker="lock")
    assert mode_of(folder) == 0o755
    assert "it holds other things" in caplog.text
    assert f"chmod go= {folder}" in caplog.text
