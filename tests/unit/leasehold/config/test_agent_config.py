"""An agent's configuration: the daemon's reader with the agent's settings."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from agent.kubernetes.pods.ends import StartBounds
from agent.kubernetes.pods.pods import PodSettings
from agent.link.http_link import LinkSettings
from agent.process.node import ProcessJobs
from agent.settings import AgentSettings
from leasehold.cli.main import main
from leasehold.config.agent_settings import AgentConfig
from leasehold.config.fields import describe
from leasehold.config.load import load_agent_config, load_config
from leasehold.config.show import reference_tables, setting_rows
from leasehold.daemon.agent import DEFAULT_SERVER, AgentOptions
from leasehold.daemon.agent_options import options_of
from scheduler.errors import ConfigError

PAGE = Path(__file__).parents[4] / "docs/reference/agent-configuration.md"


@pytest.fixture
def write(tmp_path):
    def write(text, name="agent.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def home(tmp_path):
    """An environment in which nothing of this machine is found."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def problems_of(**arguments):
    with pytest.raises(ConfigError) as caught:
        load_agent_config(**arguments)
    return caught.value.problems


def test_without_settings_an_agent_runs_as_its_parts_do_by_default(home):
    config = load_agent_config(environment=home).config
    assert config.servers == (DEFAULT_SERVER,)
    # Code that makes one by hand, as `leasehold up` does, says whether jobs are kept apart.
    jobs = ProcessJobs(isolation="auto", devices=("/dev/infiniband",))
    assert options_of(config, {}) == AgentOptions(backend=jobs)
    pods = options_of(load_agent_config(
        environment=home, flags={"backend": ("--backend", "kubernetes")}
    ).config, {"NODE_NAME": "n7", "HOST_IP": "10.0.0.7"})  # fmt: skip
    assert pods.backend.pods == PodSettings()
    assert pods.backend.bounds == StartBounds()
    assert (pods.node, pods.address, pods.settings.health_every_s) == ("n7", "10.0.0.7", 5.0)


def test_flags_win_over_the_environment_and_that_over_the_file(write, home):
    path = write(
        'servers = ["http://file:1"]\nnode = "file"\naddress = "file"\n'
        '[times]\nreport_every_s = 1\n[worker_names]\n"A 1.5" = "a"\n"B" = "b"'
    )
    home |= {"LEASEHOLD_AGENT__NODE": "variable", "LEASEHOLD_AGENT__ADDRESS": "variable"}
    flags = {
        "address": ("--address", "flag"),
        "worker_names.B": ("--worker-name", "c"),
        "workers": ("--worker", None),
    }
    loaded = load_agent_config(path=path, environment=home, flags=flags)
    config, origins = loaded.config, loaded.origins
    assert (config.servers, config.node, config.address) == (("http://file:1",), "variable", "flag")
    assert config.times.report_every_s == 1.0
    assert dict(config.worker_names) == {"A 1.5": "a", "B": "c"}
    assert [origins[key] for key in ("servers", "node", "address", "workers")] == [
        path, "LEASEHOLD_AGENT__NODE", "--address", "default",
    ]  # fmt: skip
    assert origins["worker_names"] == ", ".join(sorted(["--worker-name", path]))


def test_the_file_is_named_or_lies_where_the_daemons_would(write, home):
    usual = write("node = 'usual'", "config/leasehold/agent.toml")
    write("[server]\nport = 1", "config/leasehold/leasehold.toml")  # the daemon's is another one
    assert load_agent_config(environment=home).config.node == "usual"
    assert load_config(environment=home).config.server.port == 1
    home["LEASEHOLD_AGENT_CONFIG"] = write("node = 'named'", "named.toml")
    assert load_agent_config(environment=home).config.node == "named"
    assert load_agent_config(environment=home, path=usual).config.node == "usual"


@pytest.mark.parametrize(("variable", "text", "key", "value"), [
    ("LEASEHOLD_SERVER", "http://a:1 http://b:2", "servers", ("http://a:1", "http://b:2")),
    ("LEASEHOLD_AGENT__SERVERS", "http://a:1, http://b:2", "servers", ("http://a:1", "http://b:2")),
    ("LEASEHOLD_JOB_NAMESPACE", "jobs", "kubernetes.namespace", "jobs"),
    ("LEASEHOLD_INSTANCE", "blue", "kubernetes.instance", "blue"),
    ("LEASEHOLD_JOBS_HOST", "10.0.0.1", "kubernetes.jobs_host", "10.0.0.1"),
    ("LEASEHOLD_GUARD_IMAGE", "guard:1", "kubernetes.guard_image", "guard:1"),
    ("LEASEHOLD_CODE_IMAGE", "code:1", "kubernetes.code_image", "code:1"),
    ("LEASEHOLD_AGENT__STATE_DIR", "/x", "state_dir", "/x"),
    ("LEASEHOLD_AGENT__STOP_JOBS", "yes", "stop_jobs", True),
    ("LEASEHOLD_AGENT__START_TIMEOUT__IMAGE_S", "60", "start_timeout.image_s", 60.0),
])  # fmt: skip
def test_variables_of_today_and_of_the_release_before_are_read(home, variable, text, key, value):
    loaded = load_agent_config(environment=home | {variable: text})
    assert {k: v for k, v, _ in setting_rows(loaded)}[key] == value
    assert loaded.origins[key] == variable


def test_an_empty_variable_is_none_and_the_new_name_is_stronger(home):
    home |= {"LEASEHOLD_SERVER": "", "LEASEHOLD_INSTANCE": "old"}
    home["LEASEHOLD_AGENT__KUBERNETES__INSTANCE"] = "new"
    config = load_agent_config(environment=home).config
    assert config.servers == (DEFAULT_SERVER,)
    assert config.kubernetes.instance == "new"


def test_daemon_and_agent_leave_each_others_variables_alone(home):
    home |= {
        "LEASEHOLD_AGENT__NODE": "n", "LEASEHOLD_SERVER__PORT": "7", "LEASEHOLD_AGENT_TOKEN": "t",
        "LEASEHOLD_STATE_DIR": "/daemon",
    }  # fmt: skip
    assert load_config(environment=home).config.server.port == 7
    config = load_agent_config(environment=home).config
    assert (config.node, config.state_dir) == ("n", None)


def test_everything_that_is_wrong_is_said_at_once_with_its_place(write, home):
    path = write(
        "nod = 'x'\nworkers = 'v100:4'\nservers = []\n[times]\nreport_every_s = 0\n"
        "[kubernetes]\njobs_port = 70000\ntolerations = ['gpu']\nsharing = 'mps'\n"
        "guard_resources = ['cpu=1']\n"
    )
    home |= {"LEASEHOLD_AGENT__BACKEND": "slurm"}
    found = problems_of(path=path, environment=home, flags={"log.level": ("--log-level", "loud")})
    expected = [
        (f"{path}: nod", "did you mean 'node'?"),
        (f"{path}: workers", "'v100:4' is not allowed; give a list of texts"),
        (f"{path}: servers", "name the scheduler's address"),
        (f"{path}: times.report_every_s", "0 is not allowed; give a number >= 0.1"),
        (f"{path}: kubernetes.jobs_port", "70000 is not allowed; give a whole number"),
        (f"{path}: kubernetes.guard_resources", "'cpu=1' is no figure; give NAME=QUANTITY"),
        (f"{path}: kubernetes.tolerations", "'gpu' is not a toleration; give KEY[=VALUE]:EFFECT"),
        (f"{path}: kubernetes.sharing", "give kubernetes.sharing.NAME"),
        ("LEASEHOLD_AGENT__BACKEND", "no backend is named 'slurm'; there are: kubernetes, process"),
        ("--log-level", "'loud' is not allowed; give debug or info or warning or error"),
    ]
    assert len(found) == len(expected)
    for place, text in expected:
        assert any(line.startswith(place) and text in line for line in found), (place, text, found)


def test_what_is_unknown_refers_to_the_agents_reference(home):
    (problem,) = problems_of(environment=home | {"LEASEHOLD_AGENT__XYZZY": "1"})
    assert "`leasehold config reference --agent` lists all" in problem


def test_all_settings_reach_the_agent(home, write):
    path = write(
        'node = "n"\nworkers = ["v100:4"]\nstate_dir = "~/agent"\ntoken_file = "/t"\n'
        'enrol_file = "/e"\nca_file = "/c"\naddress = "a"\nbackend = "kubernetes"\n'
        "stop_jobs = true\n"
        "[times]\nreport_every_s = 1\nprogress_every_s = 2\nhealth_every_s = 3\npoll_wait_s = 4\n"
        "[start_timeout]\nbind_s = 5\nprepare_s = 6\nimage_s = 7\ntrouble_s = 8\nprocess_s = 9\n"
        '[kubernetes]\nnamespace = "ns"\ninstance = "i"\nkubeconfig = "/k"\ncontext = "x"\n'
        'jobs_port = 1\njobs_host = "h"\nguard_image = "g"\ndefault_image = "d"\n'
        'code_image = "c"\ncode_volume_bytes = 2000000\n'
        'guard_resources = ["limits.cpu=1"]\ncode_resources = ["requests.memory=1Gi"]\n'
        'runtime_class = "r"\ntolerations = ["gpu=a:NoSchedule", "b:"]\n[kubernetes.sharing]\n'
        'a100 = "mps"\n'
    )
    config = load_agent_config(path=path, environment=home).config
    told = options_of(config, {"LEASEHOLD_AGENT_TOKEN": " t\n", "LEASEHOLD_ENROLMENT": "e"})
    assert (told.node, told.workers, told.address, told.stop_jobs) == ("n", ("v100:4",), "a", True)
    assert told.state_dir == Path("~/agent").expanduser()
    assert (told.token_file, told.enrolment_file, told.ca_file) == tuple(
        map(Path, ("/t", "/e", "/c"))
    )
    assert (told.token, told.enrolment) == ("t", "e")
    assert told.settings == AgentSettings(
        report_every_s=1, progress_every_s=2, health_every_s=3, start_most_s=9
    )
    assert told.link == LinkSettings(wait_s=4)
    wanted = told.backend
    assert (wanted.kubeconfig, wanted.context, dict(wanted.sharing)) == (
        Path("/k"), "x", {"a100": "mps"},
    )  # fmt: skip
    assert wanted.bounds == StartBounds(bind_s=5, prepare_s=6, image_s=7, trouble_s=8)
    assert wanted.pods == PodSettings(
        namespace="ns",
        instance="i",
        default_image="d",
        endpoint_port=1,
        endpoint_host="h",
        guard_image="g",
        code_image="c",
        code_volume_bytes=2_000_000,
        guard_resources={"limits.cpu": "1"},
        code_resources={"requests.memory": "1Gi"},
        runtime_class="r",
        tolerations=(
            *PodSettings().tolerations,
            {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
            {"key": "b", "operator": "Exists"},
        ),
    )


def test_the_reference_page_is_the_one_that_the_program_prints():
    assert PAGE.read_text().endswith(reference_tables(AgentConfig))
    for info in describe(AgentConfig).values():
        assert info.help.endswith("."), info.key


def test_the_example_of_the_page_is_in_order(write, home):
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert load_agent_config(path=write(block), environment=home).config.node == "gpu-7"


def test_the_commands_show_and_check_an_agents_file(write, home, monkeypatch, capsys):
    def leasehold(*arguments):
        monkeypatch.setattr(sys, "argv", ["leasehold", *arguments])
        code = main()
        return code, *capsys.readouterr()

    monkeypatch.setenv("XDG_CONFIG_HOME", home["XDG_CONFIG_HOME"])
    path = write("node = 'n'\nworkers = ['v100:1']")
    assert leasehold("config", "check", "--agent", path) == (0, "", f"{path} is in order\n")
    code, out, _ = leasehold("config", "show", "--agent", "--config", path, "--json")
    assert code == 0
    assert json.loads(out)["workers"] == {"value": ["v100:1"], "origin": path}
    assert leasehold("config", "reference", "--agent") == (0, reference_tables(AgentConfig), "")
    code, _, err = leasehold("config", "check", path)
    assert code == 2
    assert "there is no setting 'node'" in err
