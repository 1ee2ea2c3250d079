"""Every setting that changes a decision reaches the daemon and a replay of it by the same way."""

import dataclasses
from collections.abc import Mapping

import pytest

from leasehold.config.decisions import control_settings
from leasehold.config.fields import describe
from leasehold.config.load import load_config
from leasehold.config.settings import ServerConfig
from leasehold.daemon.settings import runtime_settings
from scheduler.control.state.settings import ControlSettings
from scheduler.runtime.settings import RuntimeSettings

#: Settings of the daemon's shell: address, store, retention, logs, enrolment, limits of requests,
#: times of processes. Two more are handed over beside the
#: settings of control.
SHELL = {
    "server",
    "oidc",
    "store",
    "secrets",
    "solver",
    "retention",
    "leadership",
    "uploads",
    "log",
    "state_dir",
    "webhooks",
    "tracing",
}
SHELL_TOO = {
    "kubernetes.agent_account",
    "kubernetes.approved_label",
    "kubernetes.audience",
    "kubernetes.template_allows",
}
BESIDE = {"throughputs.path", "throughputs.hardware", "throughputs.sources"}
KEYS = [
    key
    for key in describe(ServerConfig)
    if key.partition(".")[0] not in SHELL and key not in SHELL_TOO | BESIDE
]


def loaded(**flags):
    given = {key: (f"--{key}", value) for key, value in flags.items()}
    return load_config(environment={}, flags=given).config


def another(key):
    """Return a value of a setting that is not its default."""
    info = describe(ServerConfig)[key]
    if key == "policy.name":
        return "fifo"
    if info.kind is Mapping:
        return "2"
    if info.kind is bool:
        return not info.default
    if info.default is None:
        return 20.0
    if isinstance(info.default, tuple):
        return ("one",)
    return info.default + 1


@pytest.mark.parametrize("key", KEYS)
def test_a_setting_that_changes_decisions_reaches_daemon_and_replay(key):
    extra, name = {}, key
    if key == "policy.parameters":
        extra, name = {"policy.name": "alpha_fairness"}, "policy.parameters.alpha"
    if key == "budgets.prices":
        name = "budgets.prices.v100"
    before, after = loaded(**extra), loaded(**extra, **{name: another(key)})
    assert control_settings(before) != control_settings(after)
    for field in dataclasses.fields(ControlSettings):
        daemon, replay = (make(after) for make in (runtime_settings, control_settings))
        assert getattr(daemon, field.name) == getattr(replay, field.name)


def test_what_the_daemon_has_beyond_that_decides_nothing():
    own = {f.name for f in dataclasses.fields(RuntimeSettings)}
    own -= {f.name for f in dataclasses.fields(ControlSettings)}
    kept = {"finished_days", "history_days", "log_bytes", "uploads"}
    assert own == {"snapshot_entries", "webhooks", *kept}
