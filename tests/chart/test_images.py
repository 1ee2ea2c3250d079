"""What can be said of the images without building them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

from chart_rendering import ROOT

DOCKER = ROOT / "docker"


def stages():
    """Return the text of each stage by name, and the instructions before the first."""
    text = (DOCKER / "Dockerfile").read_text()
    parts = re.split(r"^FROM (\S+) AS (\S+)$", text, flags=re.MULTILINE)
    return {parts[n + 1]: (parts[n], parts[n + 2]) for n in range(1, len(parts), 3)}, parts[0]


def test_every_stage_stands_on_one_base_that_can_be_pinned():
    found, head = stages()
    assert "ARG BASE=" in head
    assert {base for base, _ in found.values()} == {"${BASE}", "common"}


def test_nothing_is_installed_or_compiled_outside_of_the_build_stage():
    for name, (_, text) in stages()[0].items():
        if name != "build":
            assert "pip" not in text, name
            assert not re.search(r"\bapt|gcc|curl\b", text), name


def test_the_images_run_as_the_user_that_the_chart_names(minimal):
    chart = minimal.pod()["securityContext"]
    for name in ("scheduler", "agent"):
        text = stages()[0][name][1]
        assert re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE) == [
            (str(chart["runAsUser"]), str(chart["runAsGroup"]))
        ]


def test_the_program_is_process_one_and_starts_with_compiled_loops(tmp_path):
    found = stages()[0]
    assert 'ENTRYPOINT ["leasehold"]' in found["common"][1]
    assert 'ENTRYPOINT ["/bin/sh", "/opt/leasehold/share/start.sh"]' in found["scheduler"][1]
    cache = tmp_path / "image"
    cache.mkdir()
    (cache / "loop.nbc").touch()
    script = tmp_path / "start.sh"
    text = (DOCKER / "start.sh").read_text().replace("/opt/leasehold/share/numba", str(cache))
    script.write_text(text)
    program = tmp_path / "leasehold"
    program.write_text('#!/bin/sh\necho "$$ $@"\n')
    program.chmod(0o755)
    for _ in range(2):  # a restart of the container finds its /tmp as it was
        process = subprocess.Popen(
            ["/bin/sh", str(script), "serve", "--port=1"],
            stdout=subprocess.PIPE,
            text=True,
            env={
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "NUMBA_CACHE_DIR": str(tmp_path / "own"),
            },
        )
        said, _ = process.communicate(timeout=30)
        assert said == f"{process.pid} serve --port=1\n", "it became the program"
        assert [path.name for path in (tmp_path / "own").iterdir()] == ["loop.nbc"]


def test_the_image_installs_what_the_project_depends_on():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    command = [sys.executable, str(DOCKER / "requirements.py"), str(ROOT / "pyproject.toml")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    extras = project["optional-dependencies"]
    (everything,), for_notebooks = extras.pop("all"), extras.pop("notebook")
    assert everything == f"leasehold[{','.join(extras)}]"
    wanted = {*project["dependencies"], *(one for extra in extras.values() for one in extra)}
    assert wanted.isdisjoint(for_notebooks)
    assert sorted(done.stdout.splitlines()) == sorted(wanted)


def test_the_build_sees_every_package_of_the_wheel():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    seen = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in [*wheel, "docker", "pyproject.toml"]} <= set(seen)


def test_the_charts_version_is_the_programs():
    chart = (ROOT / "helm" / "leasehold" / "Chart.yaml").read_text()
    version = re.search(r'__version__ = "(.+)"', (ROOT / "leasehold" / "__init__.py").read_text())
    assert f'appVersion: "{version[1]}"' in chart
    assert f"ARG VERSION={version[1]}" in stages()[0]["common"][1]
