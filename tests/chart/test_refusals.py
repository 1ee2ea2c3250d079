"""Refusals of the chart, and their messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest
import yaml
from chart_rendering import CHART, RefusedError, as_mounted, configuration, render

from leasehold.config.fields import describe
from leasehold.config.load import load_config
from leasehold.config.settings import ServerConfig

#: Settings that follow from other values of the chart.
THE_CHARTS = {
    "state_dir",
    "server.host",
    "server.port",
    "server.advertise",
    "server.tls_cert",
    "server.tls_key",
    "server.no_auth",
    "server.hosts",
    "server.metrics_open",
    "server.admin_token_file",
    "store.url",
    "secrets.keys",  # never of a file: by scheduler.extraEnv
    "store.migrate",
    "kubernetes.agent_account",
    "kubernetes.audience",
    "kubernetes.approved_label",
}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"scheduler__replicas": 2}, "scheduler.replicas is 2, and SQLite"),
        ({"database__type": "postgresql"}, "database.postgresql.existingSecret"),
        ({"scheduler__migrations__hook": True}, "scheduler.migrations.hook needs"),
        ({"scheduler__ingress__enabled": True}, "scheduler.ingress.hosts"),
        ({"scheduler__serviceAccount__create": False}, "scheduler.serviceAccount.name"),
        ({"agent__serviceAccount__create": False}, "agent.serviceAccount.name"),
        ({"agent__enrolment__mode": "secret"}, "agent.enrolment.existingSecret"),
        ({"scheduler__enabled": False}, "agent.servers"),
        ({"jobs__namespace": "gpus"}, "jobs.namespace is the release's own namespace"),
        ({"monitoring__serviceMonitor__enabled": True}, "monitoring.serviceMonitor.tokenSecret"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_what_to_do(values, said):
    with pytest.raises(RefusedError, match=re.escape(said)):
        render(**values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "additional properties 'replicas' not allowed"),
        ({"scheduler__replica": 2}, "at '/scheduler': additional properties 'replica'"),
        ({"scheduler__replicas": "two"}, "at '/scheduler/replicas': got string, want integer"),
        ({"scheduler__config": {"engine": {"round": 1}}}, "additional properties 'round'"),
        ({"scheduler__config": {"rounds": {}}}, "additional properties 'rounds'"),
        ({"scheduler__config": {"server": {"no_auth": True}}}, "'no_auth' not allowed"),
        ({"scheduler__config": {"engine": {"round_length_s": 0}}}, "round_length_s"),
        ({"scheduler__image__digest": "latest"}, "at '/scheduler/image/digest'"),
        ({"agent__groups": {"gpu": {"nodeselector": {}}}}, "'nodeselector' not allowed"),
        ({"agent__groups": {"Not A Name": {}}}, "invalid propertyName 'Not A Name'"),
        ({"agent__enrolment__mode": "open"}, "value must be one of 'serviceAccount'"),
        ({"database__type": "mysql"}, "value must be one of 'sqlite', 'postgresql'"),
        ({"agent__servers": ["leasehold:8642"]}, "at '/agent/servers/0'"),
    ],
)
def test_a_value_that_is_unknown_or_wrong_is_named(values, said):
    with pytest.raises(RefusedError, match=re.escape(said)):
        render(**values)


def test_the_schema_leaves_no_object_open_but_those_of_kubernetes():
    schema = json.loads((CHART / "values.schema.json").read_text())
    open_ones = [path for path, part in _objects(schema) if "additionalProperties" not in part]
    assert sorted(open_ones) == [
        "/definitions/env/items",
        "/definitions/object",
        "/definitions/objects/items",
        "/definitions/resources/properties/claims/items",
        "/properties/extraObjects/items",
        "/properties/global",
    ]


def _objects(part, path=""):
    if isinstance(part, list):
        part = dict(enumerate(part))
    if not isinstance(part, dict):
        return
    if "object" in str(part.get("type", "")) and not isinstance(part.get("type"), dict):
        yield path, part
    for name, inner in part.items():
        yield from _objects(inner, f"{path}/{name}")


def test_the_schema_knows_every_default_value():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)


def test_the_schema_takes_the_settings_that_the_program_takes():
    schema = json.loads((CHART / "values.schema.json").read_text())
    sections = schema["properties"]["scheduler"]["properties"]["config"]["properties"]
    taken = {
        f"{s}.{key}": one for s, part in sections.items() for key, one in part["properties"].items()
    }
    known = {key: info for key, info in describe(ServerConfig).items() if key not in THE_CHARTS}
    assert set(taken) == set(known) | {key for key, one in taken.items() if one.get("deprecated")}
    words = {int: "integer", float: "number", bool: "boolean", str: "string"}
    words |= {Mapping: "object", tuple: "array"}
    for key, info in known.items():
        if info.choices:
            assert taken[key]["enum"] == list(info.choices)
            continue
        one = taken[key]["anyOf"][0] if info.endless else taken[key]
        assert one["type"] == words[info.kind], key
        names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
        assert {names[name]: bound for name, bound in info.bounds}.items() <= one.items(), key


def test_the_proxies_of_an_ingress_are_those_that_the_program_trusts(tmp_path):
    text = configuration(render(scheduler__ingress__trustedProxies=["10.244.0.0/16", "fd00::7"]))
    (tmp_path / "leasehold.toml").write_text(as_mounted(text, tmp_path))
    config = load_config(path=str(tmp_path / "leasehold.toml"), environment={}).config
    assert config.server.trusted_proxies == "10.244.0.0/16,fd00::7"
    assert "trusted_proxies" not in configuration(render())
