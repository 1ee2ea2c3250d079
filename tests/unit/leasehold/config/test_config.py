"""The configuration: order of sources, refusals, and output."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.config.fields import describe
from leasehold.config.load import load_config
from leasehold.config.plausibility import is_loopback
from leasehold.config.settings import ServerConfig
from leasehold.config.show import as_text, reference_tables, setting_rows
from leasehold.config.sources import mask_secrets
from scheduler.errors import ConfigError

PAGE = Path(__file__).parents[4] / "docs/reference/configuration.md"


@pytest.fixture
def write(tmp_path):
    def write(text, name="leasehold.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def home(tmp_path):
    """An environment in which nothing of this machine is found."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}


def problems_of(**arguments):
    with pytest.raises(ConfigError) as caught:
        load_config(**arguments)
    return caught.value.problems


# -- sources -------------------------------------------------------------------------------------


def test_defaults_stand_where_nobody_says_anything(home, tmp_path):
    loaded = load_config(environment=home)
    assert loaded.path is None
    assert loaded.config.server.port == 8642
    assert loaded.config.engine.round_length_s == 360.0
    assert loaded.config.state_dir == str(tmp_path / "state/leasehold")
    assert loaded.config.store.url == f"sqlite:///{tmp_path}/state/leasehold/leasehold.db"
    assert loaded.config.engine.plan_lead_s == 5 + 5 + 1 + 2
    assert loaded.origins["server.port"] == "default"
    assert loaded.origins["engine.plan_lead_s"].startswith("derived: leases.notice_s")


def test_flags_win_over_the_environment_and_that_over_the_file(write, home):
    path = write("[server]\nport = 1\nhost = '127.0.0.2'\nrate_burst = 5\n[log]\nlevel = 'error'")
    home |= {"LEASEHOLD_SERVER__PORT": "2", "LEASEHOLD_SERVER__RATE_BURST": "6"}
    loaded = load_config(
        path=path,
        environment=home,
        flags={"server.port": ("--port", 3), "log.level": ("--log-level", None)},
    )
    assert loaded.config.server.port == 3
    assert loaded.config.server.rate_burst == 6
    assert loaded.config.server.host == "127.0.0.2"
    assert loaded.config.log.level == "error"
    assert loaded.origins["server.port"] == "--port"
    assert loaded.origins["server.rate_burst"] == "LEASEHOLD_SERVER__RATE_BURST"
    assert loaded.origins["server.host"] == path


def test_text_of_a_flag_is_read_in_the_settings_type(home):
    texts = {"leases.notice_s": ("--set leases.notice_s", "1.5")}
    assert load_config(environment=home, texts=texts).config.leases.notice_s == 1.5


def test_the_environment_names_the_file_unless_a_flag_does(write, home):
    home["LEASEHOLD_CONFIG"] = write("[server]\nport = 11", "a.toml")
    other = write("[server]\nport = 12", "b.toml")
    assert load_config(environment=home).config.server.port == 11
    assert load_config(environment=home, path=other).config.server.port == 12


def test_the_users_file_is_found_where_it_usually_is(write, home):
    path = write("[server]\nport = 13", "config/leasehold/leasehold.toml")
    loaded = load_config(environment=home)
    assert (loaded.config.server.port, str(loaded.path)) == (13, path)


def test_a_file_that_was_named_must_be_there(home, tmp_path):
    (problem,) = problems_of(environment=home, path=str(tmp_path / "none.toml"))
    assert "none.toml: No such file" in problem


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"[server\n", "this is not TOML"), (b"a = '\xff'", "not UTF-8")],
)
def test_a_file_that_is_none_is_named(home, tmp_path, content, said):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    (problem,) = problems_of(environment=home, path=str(path))
    assert said in problem
    assert str(path) in problem


def test_variables_of_other_things_are_left_alone(home):
    home |= {"LEASEHOLD_JOB_ID": "a", "LEASEHOLD_TOKEN": "b", "LEASEHOLD_SERVER": "http://x"}
    load_config(environment=home)


def test_the_state_folder_has_a_variable_without_a_section(home, tmp_path):
    home["LEASEHOLD_STATE_DIR"] = str(tmp_path / "here")
    loaded = load_config(environment=home)
    assert loaded.config.state_dir == str(tmp_path / "here")
    assert loaded.origins["state_dir"] == "LEASEHOLD_STATE_DIR"


def test_parameters_of_a_policy_come_from_every_source(write, home):
    path = write("[policy]\nname = 'alpha_fairness'\n[policy.parameters]\nalpha = 2")
    loaded = load_config(path=path, environment=home)
    assert loaded.config.policy.parameters == {"alpha": "2"}
    home["LEASEHOLD_POLICY__PARAMETERS__ALPHA"] = "3"
    loaded = load_config(path=path, environment=home)
    assert loaded.config.policy.parameters == {"alpha": "3"}
    assert loaded.origins["policy.parameters"] == "LEASEHOLD_POLICY__PARAMETERS__ALPHA"


def test_naming_another_policy_drops_the_parameters_of_the_first(write, home):
    path = write("[policy]\nname = 'alpha_fairness'\n[policy.parameters]\nalpha = 2")
    loaded = load_config(path=path, environment=home, flags={"policy.name": ("--policy", "fifo")})
    assert loaded.config.policy.parameters == {}


def test_parameters_are_written_as_on_the_command_line(write, home):
    path = write("[policy]\nname='partitioned'\n[policy.parameters]\na=true\nb=[1, 2]\nc={d=1}")
    (problem, _) = problems_of(path=path, environment=home)
    assert "policy.parameters.c: {'d': 1} cannot be a parameter" in problem


# -- refusals ------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_said_at_once_with_its_place(write, home):
    path = write(
        "prot = 1\n[server]\nprot = 2\nport = 'many'\n[engin]\nround_length_s = 3\n"
        "[policy]\nname = 'max_min'\n[leases]\nmargin_s = -1"
    )
    home |= {"LEASEHOLD_LOG__LEVEL": "loud", "LEASEHOLD_SOLVER__DEADLINE_S": "soon"}
    found = problems_of(path=path, environment=home, flags={"server.no_auth": ("--no-auth", 1)})
    expected = [
        (f"{path}: prot", "there is no setting 'prot'"),
        (f"{path}: server.prot", "did you mean 'server.port'?"),
        (f"{path}: server.port", "'many' is not allowed; give a whole number >= 0 and <= 65535"),
        (f"{path}: engin.round_length_s", "did you mean 'engine.round_length_s'?"),
        (f"{path}: leases.margin_s", "-1 is not allowed; give a number > 0"),
        ("LEASEHOLD_LOG__LEVEL", "'loud' is not allowed; give debug or info or warning or error"),
        ("LEASEHOLD_SOLVER__DEADLINE_S", "'soon' is not allowed; give a number > 0"),
        ("--no-auth", "1 is not allowed; give true or false"),
        (f"{path}: policy.name", "did you mean 'max_min_fairness'?"),
    ]
    assert len(found) == len(expected)
    for place, text in expected:
        assert any(line.startswith(place) and text in line for line in found), (place, text)


def test_one_problem_is_the_message_and_several_are_notes(home):
    with pytest.raises(ConfigError, match="LEASEHOLD_SERVER__PORT: 'x' is not allowed"):
        load_config(environment=home | {"LEASEHOLD_SERVER__PORT": "x"})
    with pytest.raises(ConfigError, match="has 2 problems") as caught:
        load_config(
            environment=home | {"LEASEHOLD_SERVER__PORT": "x", "LEASEHOLD_SERVER__PROT": "1"}
        )
    assert len(caught.value.__notes__) == 2


def test_the_right_name_in_the_wrong_section_is_recognised(write, home):
    (problem,) = problems_of(path=write("[store]\nttl_s = 3"), environment=home)
    assert "did you mean 'leadership.ttl_s'?" in problem


@pytest.mark.parametrize("text", ["spec.a,spec.b", "spec.a spec.b", '["spec.a", "spec.b"]'])
def test_a_list_is_read_as_words_or_as_in_the_file(home, text):
    flags = {"kubernetes.template_allows": ("--set kubernetes.template_allows", text)}
    loaded = load_config(environment=home, texts=flags)
    assert loaded.config.kubernetes.template_allows == ("spec.a", "spec.b")


@pytest.mark.parametrize("text", ['["spec.a"', "[1]"])
def test_a_malformed_list_is_refused_with_what_is_wanted(home, text):
    flags = {"kubernetes.template_allows": ("--set kubernetes.template_allows", text)}
    with pytest.raises(ConfigError, match="give a list of text"):
        load_config(environment=home, texts=flags)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("engine.nosuch", "`leasehold config reference` lists all"),
        ("engine.round_lenght_s", "did you mean 'engine.round_length_s'?"),
        ("enigne.tik_s", "did you mean 'engine.tick_s'?"),
        ("state_dri", "did you mean 'state_dir'?"),
    ],
)
def test_only_a_name_that_is_close_is_suggested(home, key, hint):
    with pytest.raises(ConfigError) as caught:
        load_config(environment=home, texts={key: (f"--set {key}", "3")})
    assert str(caught.value).endswith(f"there is no setting '{key}'; {hint}")


def test_a_mapping_is_set_by_name(write, home):
    (problem,) = problems_of(path=write("[policy]\nparameters = 'a=1'"), environment=home)
    assert "give policy.parameters.NAME" in problem


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("RETENTION__FINISHED_DAYS", "inf", math.inf),
        ("SERVER__METRICS_OPEN", "Yes", True),
        ("SERVER__METRICS_OPEN", "0", False),
        ("SERVER__TLS_CERT", "none", None),
        ("ENGINE__ROUND_LENGTH_S", " 60 ", 60.0),
    ],
)
def test_text_is_read_in_the_settings_type(home, key, text, value):
    loaded = load_config(environment=home | {f"LEASEHOLD_{key}": text})
    found = {k: v for k, v, _ in setting_rows(loaded)}[key.lower().replace("__", ".")]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ENGINE__ROUND_LENGTH_S", "inf"),
        ("ENGINE__ROUND_LENGTH_S", "nan"),
        ("RETENTION__FINISHED_DAYS", "nan"),
        ("SERVER__PORT", "65536"),
        ("SERVER__PORT", "1.5"),
        ("SERVER__NO_AUTH", "maybe"),
        ("SOLVER__WORKERS", "0"),
    ],
)
def test_values_out_of_range_are_refused(home, key, text):
    (problem,) = problems_of(environment=home | {f"LEASEHOLD_{key}": text})
    assert f"LEASEHOLD_{key}: '{text}' is not allowed" in problem


# -- what goes together --------------------------------------------------------------------------


def test_a_round_leaves_room_for_jobs_to_go(write, home):
    (problem,) = problems_of(path=write("[engine]\nround_length_s = 12"), environment=home)
    assert "a round of 12 s leaves no room for leases.notice_s 5 + leases.grace_s 5" in problem
    short = "[engine]\nround_length_s = 5\n[leases]\nnotice_s = 1\ngrace_s = 1\nmargin_s = 0.5"
    assert load_config(path=write(short), environment=home).config.engine.plan_lead_s == 3.5


@pytest.mark.parametrize(("lead", "said"), [(11, "jobs would be cut short"), (360, "not shorter")])
def test_the_plan_comes_early_enough_and_within_the_round(write, home, lead, said):
    path = write(f"[engine]\nplan_lead_s = {lead}")
    (problem,) = problems_of(path=path, environment=home)
    assert said in problem
    assert problem.startswith(f"{path}: engine.plan_lead_s")


def test_nodes_are_not_lost_sooner_than_leases_are_let_again(home):
    home |= {"LEASEHOLD_LEASES__NODE_TIMEOUT_S": "1"}
    (problem,) = problems_of(environment=home)
    assert "leases.node_timeout_s: 1 s is shorter than leases.margin_s of 2 s" in problem


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "node.example"])
def test_no_auth_is_for_loopback_only(home, host):
    flags = {"server.no_auth": ("--no-auth", True), "server.host": ("--host", host)}
    (problem,) = problems_of(environment=home, flags=flags)
    assert problem.startswith("--no-auth: server.no_auth: anyone that reaches")
    for local in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        flags["server.host"] = ("--host", local)
        load_config(environment=home, flags=flags)
        assert is_loopback(local)


@pytest.mark.parametrize("text", ["*", "proxy.example", "10.0.0.0/33", "10.0.0.1,nobody"])
def test_a_trusted_proxy_is_an_address_or_a_network(home, text):
    flags = {"server.trusted_proxies": ("--set server.trusted_proxies", text)}
    (problem,) = problems_of(environment=home, flags=flags)
    assert problem.startswith("--set server.trusted_proxies: server.trusted_proxies: ")
    flags["server.trusted_proxies"] = ("--set", "10.0.0.7, 192.168.0.0/16,fd00::/8")
    load_config(environment=home, flags=flags)


def test_tls_needs_both_files_and_they_must_be_there(home, tmp_path):
    cert = tmp_path / "cert.pem"
    cert.touch()
    for one, other in (("cert", "key"), ("key", "cert")):
        (problem,) = problems_of(
            environment=home, flags={f"server.tls_{one}": (f"--tls-{one}", str(cert))}
        )
        assert problem == f"--tls-{one}: server.tls_{one}: TLS needs server.tls_{other} too"
    flags = {
        "server.tls_cert": ("--tls-cert", str(cert)),
        "server.tls_key": ("--tls-key", str(tmp_path / "key.pem")),
    }
    (problem,) = problems_of(environment=home, flags=flags)
    assert "there is no file" in problem


@pytest.mark.parametrize("url", ["mysql://u:secret@h/d", "leasehold.db", "sqlite:memory"])
def test_other_databases_are_refused_without_showing_a_password(home, url):
    (problem,) = problems_of(environment=home | {"LEASEHOLD_STORE__URL": url})
    assert "names no database" in problem
    assert "secret" not in problem


def test_throughputs_are_a_file_or_bundled(home):
    load_config(environment=home | {"LEASEHOLD_THROUGHPUTS__PATH": "bundled"})
    (problem,) = problems_of(environment=home | {"LEASEHOLD_THROUGHPUTS__PATH": "/none.csv"})
    assert "there is no file '/none.csv'" in problem


@pytest.mark.parametrize(
    ("text", "setting", "said"),
    [
        (
            "[throughputs]\nsources = ['tensor_splt']",
            "throughputs.sources",
            "no source of configurations is named 'tensor_splt'",
        ),
        ("[throughputs]\npath = 'FILE'", "throughputs.path", "job_type,scale_factor,worker"),
        (
            "[throughputs]\nhardware = 'HARDWARE'",
            "throughputs.hardware",
            "npu.memory_gb is -1: Expected `float` > 0.0",
        ),
        ("[throughputs]\nhardware = '/none'", "throughputs.hardware", "/none"),
        ("[store]\nurl = 'sqlite:///'", "store.url", "in memory cannot be shared"),
        ("[store]\nurl = 'sqlite:///:memory:'", "store.url", "in memory cannot be shared"),
        ("[store]\nurl = 'postgresql://h:ten/d'", "store.url", "is no URL: Port could not"),
        ("[tracing]\nendpoint = 'collector:4318'", "tracing.endpoint", "is no address; give one"),
        ("[isolation]\nfirst_uid = 2147483600", "isolation.first_uid", "beyond the largest uid"),
        ("[kubernetes]\nagent_account = 'agent'", "kubernetes.agent_account", "NAMESPACE/NAME"),
        ("[server]\nadmin_token_file = 'FILE'", "server.admin_token_file", "must hold one token"),
        ("[server]\nadmin_token_file = '/none'", "server.admin_token_file", "cannot be read"),
        (
            "[server]\ntls_cert = 'FILE'\ntls_key = 'FILE'",
            "server.tls_cert",
            "are no certificate with its key in PEM",
        ),
    ],
)
def test_what_a_start_would_refuse_is_found_with_its_setting(write, home, text, setting, said):
    file = write("type,rate\na b,1\n", name="file")
    hardware = write("npu: {tflops: {fp16: 100}, memory_gb: -1}\n", name="hardware")
    path = write(text.replace("FILE", file).replace("HARDWARE", hardware))
    (problem,) = problems_of(path=path, environment=home)
    assert problem.startswith(f"{path}: {setting}: "), problem
    assert said in problem


def test_a_replay_elsewhere_needs_neither_certificate_nor_token(write, home):
    path = write("[server]\ntls_cert = '/no'\ntls_key = '/no'\nadmin_token_file = '/no'")
    assert len(problems_of(path=path, environment=home)) == 3
    assert load_config(path=path, environment=home, elsewhere=True).config.server.tls_cert == "/no"


def test_a_parameter_that_the_policy_does_not_know_is_refused_where_it_stands(write, home):
    path = write("[policy]\nname = 'alpha_fairness'\n[policy.parameters]\nalfa = 2")
    (problem,) = problems_of(path=path, environment=home)
    assert problem.startswith(f"{path}: policy.parameters:")


@pytest.mark.parametrize(
    ("host", "cert", "url"),
    [
        ("127.0.0.1", None, "http://127.0.0.1:1"),
        ("::1", None, "http://[::1]:1"),
        ("10.1.1.1", "cert", "https://10.1.1.1:1"),
    ],
)
def test_the_advertised_address_follows_from_where_it_listens(home, tmp_path, host, cert, url):
    flags = {"server.host": ("--host", host), "server.port": ("--port", 1)}
    if cert:
        flags["server.tls_cert"] = flags["server.tls_key"] = ("--tls", str(tmp_path / cert))
    loaded = load_config(environment=home, flags=flags, elsewhere=True)
    assert loaded.config.server.advertise == url


def test_who_listens_everywhere_is_reached_by_name(home, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "alpha")
    loaded = load_config(environment=home, flags={"server.host": ("--host", "0.0.0.0")})
    assert loaded.config.server.advertise == "http://alpha:8642"


# -- output --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:se:cr@et@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me@db/x", "postgresql://me@db/x"),
        ("postgresql://db/x?user=me&password=secret", "postgresql://db/x?user=me&password=***"),
        ("sqlite:////var/lib/a.db", "sqlite:////var/lib/a.db"),
    ],
)
def test_passwords_of_databases_are_masked(url, shown):
    assert mask_secrets("store.url", url) == shown


@given(password=st.text(st.characters(codec="utf-8", exclude_characters="/?"), min_size=4))
def test_no_password_shows_whatever_it_is_made_of(password):
    secret = f"<{password}>"
    assert secret not in mask_secrets("store.url", f"postgresql://me:{secret}@host/db")


def test_every_setting_is_shown_with_its_origin(home):
    home["LEASEHOLD_STORE__URL"] = "postgresql://me:secret@host/db"
    shown = {
        key: (value, origin) for key, value, origin in setting_rows(load_config(environment=home))
    }
    assert list(shown) == list(describe(ServerConfig))
    assert shown["store.url"] == ("postgresql://me:***@host/db", "LEASEHOLD_STORE__URL")
    assert shown["policy.parameters"] == ({}, "default")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ({"a": "1"}, '{a = "1"}'),
        (math.inf, "inf"),
        (2.0, "2"),
        (True, "true"),
        ("x", '"x"'),
    ],
)
def test_values_are_shown_as_toml_writes_them(value, text):
    assert as_text(value) == text


def test_the_reference_page_is_the_one_that_the_program_prints():
    assert PAGE.read_text().endswith(reference_tables())
    for info in describe(ServerConfig).values():
        assert info.help.endswith("."), info.key


# -- removed settings ----------------------------------------------------------------------------


def test_a_setting_that_is_gone_is_read_with_a_warning_from_every_source(write, home):
    path = write("[engine]\nstay = true\nkeep_bonus = 0.25")
    loaded = load_config(
        path=path,
        environment=home | {"LEASEHOLD_ENGINE__STAY": "no"},
        texts={"engine.stay": ("--set engine.stay", "false")},
    )
    assert loaded.config.engine.keep_bonus == 0.25
    assert "engine.stay" not in loaded.origins
    assert [
        line.partition(": 'engine.stay' is no setting any more: ")[0] for line in loaded.warnings
    ] == [
        f"{path}: engine.stay",
        "LEASEHOLD_ENGINE__STAY",
        "--set engine.stay",
    ]


def test_a_node_timeout_at_which_healthy_nodes_seem_silent_is_remarked_upon(home):
    given = {"LEASEHOLD_LEASES__NODE_TIMEOUT_S": "20"}
    loaded = load_config(environment=home | given)  # it starts all the same
    assert loaded.config.leases.node_timeout_s == 20.0
    (line,) = loaded.warnings
    assert line.startswith("LEASEHOLD_LEASES__NODE_TIMEOUT_S: leases.node_timeout_s: 20 s is short")
    assert "give 30 s or more" in line
    given = {"LEASEHOLD_LEASES__NODE_TIMEOUT_S": "30"}
    assert load_config(environment=home | given).warnings == ()


def test_what_nobody_sets_is_no_warning(home):
    assert load_config(environment=home).warnings == ()
