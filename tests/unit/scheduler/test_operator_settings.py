"""Settings are declared once: the configuration and the code that reads them share the class."""

import dataclasses
import math

import pytest

from leasehold.config.decisions import control_settings
from leasehold.config.fields import describe
from leasehold.config.load import load_config
from leasehold.config.settings import ServerConfig
from leasehold.daemon.settings import api_settings, runtime_settings
from scheduler.control.state.settings import ControlSettings
from scheduler.engine.settings import EngineSettings
from scheduler.errors import ParameterError
from scheduler.operator_settings import (
    IdleSettings,
    LearningSettings,
    RetentionSettings,
    RoundSettings,
    check_ranges,
    values_of,
)
from scheduler.runtime.settings import RuntimeSettings


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EngineSettings(round_length_s=0.0), "round_length_s is 0.0; it must be > 0"),
        (lambda: EngineSettings(behind_rounds=0.5), "behind_rounds is 0.5; it must be >= 1"),
        (lambda: EngineSettings(patience_s=math.inf), "patience_s is inf; it must be >= 0"),
        (lambda: EngineSettings(keep_bonus=math.nan), "keep_bonus is nan; it must be >= 0"),
        (lambda: ControlSettings(margin_s=0.0), "margin_s is 0.0; it must be > 0"),
        (lambda: ControlSettings(first_uid=10), "first_uid is 10; it must be >= 65536"),
        (lambda: ControlSettings(tick_s=0.0), "tick_s is 0.0; it must be > 0"),
        (
            lambda: ControlSettings(idle=IdleSettings(use_percent=101.0)),
            "use_percent is 101.0; it must be >= 0 and <= 100",
        ),
        (
            lambda: ControlSettings(learning=LearningSettings(least_s=-1.0)),
            "least_s is -1.0; it must be > 0",
        ),
        (lambda: RuntimeSettings(log_bytes=1), "log_bytes is 1; it must be >= 4096"),
        (lambda: RuntimeSettings(snapshot_entries=0), "snapshot_entries is 0; it must be >= 1"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(make, words):
    with pytest.raises(ParameterError) as caught:
        make()
    assert str(caught.value) == words


def test_endless_times_are_allowed_if_the_setting_says_so():
    check_ranges(RetentionSettings(finished_days=math.inf, history_days=math.inf))


def test_fields_without_a_declaration_are_not_read_from_files():
    keys = describe(ServerConfig)
    assert "webhooks.first_pause_s" in keys
    assert "webhooks.look_s" not in keys


def test_values_of_a_section_are_those_that_the_class_declares():
    config = load_config(environment={}).config
    names = {one.name for one in dataclasses.fields(RoundSettings)}
    assert values_of(config.engine, RoundSettings).keys() == names
    assert not {"tick_s", "plan_lead_s"} & names


def test_defaults_of_the_configuration_are_those_of_the_code():
    config = load_config(environment={}).config
    lead_s = config.engine.plan_lead_s
    assert control_settings(config) == ControlSettings(
        engine=EngineSettings(plan_lead_s=lead_s, refuse_what_cannot_fit=False),
        policy=control_settings(config).policy,
    )
    assert runtime_settings(config).finished_days == RuntimeSettings().finished_days
    assert api_settings(config).max_batch == 1000
