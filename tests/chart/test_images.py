"""Checks of the images without building them."""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import sys
import threading
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
    assert "ARG BASE=${IMAGE}${DIGEST:+@${DIGEST}}" in head
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


def test_the_image_installs_by_hashes_alone():
    text = stages()[0]["build"][1]
    installs = re.findall(r"pip install (.*?)(?: \\\\|\n)", text)
    outside = [line for line in installs if "--no-index" not in line]
    assert len(outside) == 2
    for part in ("--no-deps", "--require-hashes", "-r /locks/"):
        assert all(part in line for line in outside), part
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras.pop("all")
    extras.pop("notebook")
    assert everything == f"leasehold-scheduler[{','.join(extras)}]"
    own = re.findall(r"pip (?:wheel|install) .*--no-(?:build|index).*", text)
    assert all("sdk" in line for line in own), "both distributions are built and installed"
    assert len(own) == 2


def test_the_digest_of_the_base_is_asked_of_its_registry_and_written(tmp_path):
    digest = "sha256:" + "ab" * 32

    class Registry(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            known = self.headers.get("Authorization") == "Bearer pull"
            self.send_response(200 if known else 401)
            where = f"http://127.0.0.1:{self.server.server_port}/token"
            self.send_header("WWW-Authenticate", f'Bearer realm="{where}",service="r",scope="s"')
            self.send_header("Docker-Content-Digest", digest)
            self.end_headers()

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"token": "pull"}')

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = tmp_path / "Dockerfile"
    file.write_text((DOCKER / "Dockerfile").read_text())
    command = [sys.executable, DOCKER / "base-digest.py", file]
    command += ["--registry", f"http://127.0.0.1:{server.server_port}"]
    try:
        for expected in (1, 0):  # --check says whether it is the one of today
            done = subprocess.run(
                [*command, "--check"], check=False, capture_output=True, text=True
            )
            assert done.returncode == expected, done.stderr
            subprocess.run(command, check=True, capture_output=True)
            assert f'ARG DIGEST="{digest}"' in file.read_text()
    finally:
        server.shutdown()
        server.server_close()


def test_the_build_sees_every_package_of_the_wheels():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    seen = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in [*wheel, "leasehold", "sdk", "docker", "pyproject.toml"]} <= set(
        seen
    )


def test_the_charts_version_is_the_programs():
    chart = (ROOT / "helm" / "leasehold" / "Chart.yaml").read_text()
    version = re.search(r'__version__ = "(.+)"', (ROOT / "leasehold" / "__init__.py").read_text())
    assert f'appVersion: "{version[1]}"' in chart
    assert f"ARG VERSION={version[1]}" in stages()[0]["common"][1]
