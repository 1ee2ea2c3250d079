"""What runs an agent's jobs is found by name; what cannot be used is named."""

import importlib.util
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from agent.backend import NodeBackend
from agent.kubernetes.jobs_as_pods import PodJobs
from agent.process.node import ProcessJobs
from leasehold.config import backend_names as known_names
from leasehold.config import backends
from leasehold.config.agent_settings import AgentConfig
from leasehold.config.backend_names import backend_names
from leasehold.config.backends import make_backend
from leasehold.config.load import load_agent_config
from leasehold.daemon.agent_options import options_of
from scheduler.errors import ConfigError, InputError, MissingExtraError


class Queue(NodeBackend):
    def __init__(self, name, node):
        self.name, self.node = name, node

    def open(self, setup):
        raise NotImplementedError


def queue(config, environment):
    return Queue(config.backend_options["name"], environment["QUEUE_NODE"])


def broken(config, environment):
    raise RuntimeError("no licence")


def plugin(name, value, distribution="somebody"):
    point = EntryPoint(name=name, value=value, group=backends.GROUP)
    vars(point)["dist"] = SimpleNamespace(name=distribution)
    return point


@pytest.fixture
def plugged(monkeypatch):
    def use(*plugins):
        for module in (backends, known_names):
            monkeypatch.setattr(module, "entry_points", lambda group: list(plugins))

    # The test module's own name, so that an entry point can import from it.
    monkeypatch.setitem(sys.modules, "my_backend", sys.modules[__name__])
    return use


BY_DEFAULT = ProcessJobs(isolation="auto", devices=("/dev/infiniband",))


def test_the_built_in_ones_are_found():
    assert backend_names() == ("kubernetes", "process")
    assert make_backend(AgentConfig(), {}) == BY_DEFAULT
    pods = make_backend(AgentConfig(backend="kubernetes"), {"NODE_NAME": "n7"})
    assert isinstance(pods, PodJobs)
    assert pods.node == "n7"


def test_a_plugin_is_told_its_options_and_may_know_the_node(plugged, tmp_path):
    plugged(plugin("queue", "my_backend:queue"), plugin("queue", "my_backend:queue"))
    file = tmp_path / "agent.toml"
    file.write_text('backend = "queue"\n[backend_options]\nname = "fast"\n')
    config = load_agent_config(path=str(file), environment={}).config
    options = options_of(config, {"QUEUE_NODE": "q1"})
    assert isinstance(options.backend, Queue)
    assert (options.backend.name, options.node) == ("fast", "q1")


def test_an_unknown_name_lists_what_there_is(plugged):
    plugged(plugin("queue", "my_backend:queue"))
    flags = {"backend": ("--backend", "slurm")}
    with pytest.raises(
        ConfigError,
        match=r"--backend: backend: no backend is named 'slurm'; "
        r"there are: kubernetes, process, queue",
    ):
        load_agent_config(environment={}, flags=flags)
    with pytest.raises(InputError, match="no backend is named 'slurm'"):
        make_backend(AgentConfig(backend="slurm"), {})


def test_the_extra_that_a_backend_lacks_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert make_backend(AgentConfig(), {}) == BY_DEFAULT
    with pytest.raises(
        MissingExtraError,
        match=r"'kubernetes'\); get it by: pip install 'leasehold-scheduler\[agent,kubernetes\]'",
    ):
        make_backend(AgentConfig(backend="kubernetes"), {})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("two", "that of two plugins"),
        ("bad", r"'bad' \(my_backend:broken of somebody\) failed: RuntimeError: no licence"),
        ("far", "'far' .* failed: ModuleNotFoundError"),
        ("no", "gives a Simple; it must be an agent.backend.NodeBackend"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named(plugged, name, reason):
    plugged(
        plugin("two", "my_backend:queue"),
        plugin("two", "other:queue", "another"),
        plugin("bad", "my_backend:broken"),
        plugin("far", "no_such_module:X"),
        plugin("no", "my_backend:Simple"),
    )
    with pytest.raises(InputError, match=reason):
        make_backend(AgentConfig(backend=name), {})


class Simple:
    def __init__(self, config, environment):
        pass
