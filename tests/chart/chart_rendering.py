"""The chart as helm renders it; helm itself is built from its go.mod, once."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "leasehold"
#: What templates are rendered for; helm without a cluster would assume 1.20.
KUBERNETES = "1.35.4"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))


class RefusedError(Exception):
    """What helm says when it refuses values."""


@functools.cache
def helm_program():
    if not shutil.which(os.environ.get("GO") or "go") and not Path("/usr/local/go/bin/go").exists():
        pytest.skip("helm is built with Go, and there is no go here")
    build = ROOT / "tests" / "tools" / "build.sh"
    built = subprocess.run([build, "helm"], check=True, stdout=subprocess.PIPE, text=True)
    return built.stdout.strip()


def helm(*arguments):
    """Return what helm prints."""
    done = subprocess.run([helm_program(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(done.stderr + done.stdout)
    return done.stdout


@dataclass(frozen=True)
class Rendered:
    """Objects of a release."""

    objects: tuple

    def all(self, kind):
        return [item for item in self.objects if item["kind"] == kind]

    def one(self, kind, name=None):
        if kind == "Deployment":
            name = name or "-scheduler"
        found = [
            item
            for item in self.all(kind)
            if name is None or item["metadata"]["name"].endswith(name)
        ]
        assert len(found) == 1, f"{kind} {name}: {[i['metadata']['name'] for i in found]}"
        return found[0]

    @property
    def kinds(self):
        return {item["kind"] for item in self.objects}

    def pod(self, kind="Deployment", name=None):
        return self.one(kind, name)["spec"]["template"]["spec"]

    def container(self, kind="Deployment", name=None):
        return self.pod(kind, name)["containers"][0]


def render(*files, namespace="gpus", release="lh", **values):
    """Render the chart with values files, and values by dotted name (``__`` for a dot)."""
    arguments = ["template", release, str(CHART), "--namespace", namespace]
    arguments += ["--kube-version", KUBERNETES]
    for file in files:
        arguments += ["--values", str(file)]
    for name, value in values.items():
        arguments += ["--set-json", f"{name.replace('__', '.')}={json.dumps(value)}"]
    return Rendered(tuple(item for item in yaml.safe_load_all(helm(*arguments)) if item))


@functools.cache
def rendered_file(path):
    return render(path)


def configuration(rendered):
    """The scheduler's configuration file, as the chart renders it."""
    return rendered.one("ConfigMap", "-config")["data"]["leasehold.toml"]


def as_mounted(text, folder):
    """Return a configuration with what its pod would have mounted lying in a folder."""
    (folder / "token").write_text("lh_" + "0" * 43)
    if "/etc/leasehold/tls" in text:
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ]
        command += ["-nodes", "-subj", "/CN=leasehold", "-days", "1"]
        command += ["-keyout", folder / "tls.key", "-out", folder / "tls.crt"]
        subprocess.run(command, check=True, capture_output=True)
    for mounted in ("tls", "admin"):
        text = text.replace(f"/etc/leasehold/{mounted}", str(folder))
    return text


def environment(container):
    return {one["name"]: one for one in container["env"]}


def mounts(container):
    return {one["name"]: one["mountPath"] for one in container["volumeMounts"]}


def volumes(pod):
    return {one["name"]: one for one in pod["volumes"]}
