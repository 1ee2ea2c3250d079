"""What users of a release before have set, and what its chart has made: this one takes it over."""

from __future__ import annotations

import pytest
import yaml
from chart_rendering import CHART, KUBERNETES, ROOT, as_mounted, helm

from leasehold.config.load import load_config
from leasehold_testing.releases import BEFORE, OLDEST, chart_of_release

FILES = ("minimal", "everything", "postgresql-ha")
#: Kubernetes takes no other value for these once an object is there.
FIXED = {
    "Deployment": ("spec", "selector"),
    "DaemonSet": ("spec", "selector"),
    "PersistentVolumeClaim": ("spec",),
    "Secret": ("type",),
}


@pytest.fixture(scope="module", params=[BEFORE, OLDEST], ids=["0.1.0", "oldest"])
def before(request, tmp_path_factory):
    return chart_of_release(ROOT, tmp_path_factory.mktemp("before"), request.param)


def objects(chart, values):
    """Return the objects of a release by kind and name."""
    rendered = helm(
        *("template", "lh", str(chart), "--namespace", "gpus", "--is-upgrade"),
        *("--kube-version", KUBERNETES, "--values", str(values)),
    )
    found = [item for item in yaml.safe_load_all(rendered) if item]
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def at(item, path):
    for key in path:
        item = item.get(key, {})
    return item


@pytest.mark.parametrize("name", FILES)
def test_its_values_make_the_same_objects_as_far_as_they_cannot_change(before, name):
    values = before / "ci" / f"{name}-values.yaml"
    old, new = objects(before, values), objects(CHART, values)
    assert len(old) >= 8
    assert old.keys() <= new.keys(), "an upgrade would remove them"
    for key, item in old.items():
        for path in [FIXED[key[0]]] if key[0] in FIXED else []:
            assert at(new[key], path) == at(item, path), key


@pytest.mark.parametrize("name", FILES)
def test_the_configuration_that_it_made_is_taken_by_this_scheduler(before, name, tmp_path):
    """As it happens while an upgrade is under way."""
    made = objects(before, before / "ci" / f"{name}-values.yaml")
    (maps,) = [item for (kind, _), item in made.items() if kind == "ConfigMap" and _is_its(item)]
    file = tmp_path / "leasehold.toml"
    file.write_text(as_mounted(maps["data"]["leasehold.toml"], tmp_path))
    loaded = load_config(path=str(file), environment={"XDG_CONFIG_HOME": str(tmp_path)})
    assert loaded.config.engine.round_length_s > 0


def _is_its(item):
    return "leasehold.toml" in item.get("data", {})


def test_all_of_its_values_written_out_are_taken(before):
    """The values of a user with a copy of the whole file."""
    assert (
        objects(CHART, before / "values.yaml").keys()
        >= objects(before, before / "values.yaml").keys()
    )
