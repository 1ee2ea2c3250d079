"""`.ci/install` installs the versions of a lock, also after newer releases."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
INSTALL = ROOT / ".ci" / "install"


def release(folder: Path, name: str, version: str, *requires: str) -> str:
    """Put a wheel into the folder and return its line of a lock."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: more\n"
    metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = '{version}'\n")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}=={version} \\\n    --hash=sha256:{digest}\n"


@pytest.fixture
def install(tmp_path):
    """Install a lock from the folder `index` alone, and return what came out."""
    if not INSTALL.exists():
        pytest.skip("the tests were copied away from the sources")
    (tmp_path / "index").mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)

    def run(*lines: str) -> subprocess.CompletedProcess[str]:
        lock = tmp_path / "lock.txt"
        lock.write_text("".join(lines))
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "UV": str(Path(sys.executable).with_name("uv")),
            "UV_OFFLINE": "1",
            "UV_FIND_LINKS": str(tmp_path / "index"),
        }
        done = subprocess.run(
            [INSTALL, tmp_path / "venv", lock], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return installed(tmp_path / "venv")

    return run


def installed(venv: Path) -> dict[str, str]:
    """Return the version of each distribution in an environment."""
    found = venv.glob("lib/python*/site-packages/*.dist-info")
    return dict(path.name.removesuffix(".dist-info").split("-") for path in found)


def test_a_newer_release_of_what_is_asked_for_with_an_extra_is_not_taken(install, tmp_path):
    index = tmp_path / "index"
    lock = [release(index, "tool", "1.0", "part[more]>=1"), release(index, "part", "1.0")]
    release(index, "part", "2.0")
    assert install(*lock) == {"tool": "1.0", "part": "1.0"}


def test_what_another_lock_installed_stays(install, tmp_path):
    index = tmp_path / "index"
    install(release(index, "tool", "1.0"))
    assert install(release(index, "part", "1.0")) == {"tool": "1.0", "part": "1.0"}
