"""Clusters from specs and files, and prices."""

import re

import pytest

from scheduler.errors import ClusterError
from traces import read_cluster, read_prices

GOOD = """
worker_types:
  h100: {cost_usd_per_hour: 9.5}
  t4:
nodes:
  - name: big
    workers: {h100: 2, t4: 1}
  - name: small
    count: 2
    workers: {t4: 3}
"""


def test_a_spec_gets_the_bundled_prices_unless_others_are_given():
    cluster = read_cluster("v100:6,x:2", workers_per_node=4)
    assert cluster.spec == "v100:6,x:2"
    assert [n.name for n in cluster.nodes] == ["v100-0", "v100-1", "x-0"]
    assert cluster.cost_usd_per_hour.tolist() == [read_prices()["v100"], 0.0]
    assert read_cluster("v100:6", prices={"v100": 2.0}).cost_usd_per_hour.tolist() == [2.0]
    assert read_cluster("v100:6", prices={}).cost_usd_per_hour.tolist() == [0.0]


def test_a_file_gives_nodes_of_mixed_types_and_several_of_a_kind(write):
    cluster = read_cluster(write("c.yaml", GOOD))
    assert cluster.type_names == ("h100", "t4")
    assert cluster.cost_usd_per_hour.tolist() == [9.5, 0.0]
    assert [(n.name, n.workers) for n in cluster.nodes] == [
        ("big", ("h100", "h100", "t4")),
        ("small-0", ("t4", "t4", "t4")),
        ("small-1", ("t4", "t4", "t4")),
    ]


def test_the_bundled_cluster_and_prices_are_readable():
    assert read_cluster("bundled").spec == "t4:4,v100:4,a100:4"
    assert read_cluster("bundled:cluster").workers == 12
    assert min(read_prices().values()) > 0


def test_all_faults_of_a_file_are_told_at_once(write):
    text = """
worker_types: {v100: {price: 3}, a100: {cost_usd_per_hour: -1}, k80: {cost_usd_per_hour: cheap}}
nodes:
  - {name: x, workers: {v10: 4}}
  - {nam: y, workers: 3, count: 0}
  - 7
spare: 1
"""
    path = write("c.yaml", text)
    with pytest.raises(ClusterError) as caught:
        read_cluster(path)
    lines = str(caught.value).splitlines()
    assert lines == [
        f"{path}: the file: unknown key 'spare'; known are worker_types, nodes",
        f"{path}: worker_types.v100: unknown key 'price'; known are cost_usd_per_hour",
        f"{path}: worker_types.a100.cost_usd_per_hour has the value -1: it must be >= 0",
        f"{path}: worker_types.k80.cost_usd_per_hour has the value 'cheap': it must be a number",
        (
            f"{path}: nodes[0].workers has the value 'v10': it is not among worker_types "
            "(did you mean 'v100'?); add it there"
        ),
        f"{path}: nodes[1]: the key 'name' is missing; add it",
        (
            f"{path}: nodes[1]: unknown key 'nam' (did you mean 'name'?); known are name, workers, "
            "count"
        ),
        f"{path}: nodes[1].workers has the value 3: it must be a mapping",
        f"{path}: nodes[1].count has the value 0: it must be a whole number >= 1",
        f"{path}: nodes[2] has the value 7: it must be a mapping",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("worker_types: [", r"c\.yaml:1: the YAML is malformed"),
        ("a: 1\na: 2", r"c\.yaml:2: .*the key 'a' is there twice"),
        ("? [1, 2]\n: 3", "the YAML is malformed"),
        ("a: \x00", "the YAML is malformed"),
        ("- 1", r"the file has the value \[1\]: it must be a mapping"),
        ("worker_types: {a: }\nnodes: 3", "nodes has the value 3: it must be a list"),
        ("worker_types: {a: }\nnodes: []", r"c\.yaml: the cluster has no workers"),
        (
            "worker_types: {a: }\nnodes: [{name: x, workers: {a: 1}}, {name: x, workers: {a: 1}}]",
            "node 'x' is listed twice",
        ),
    ],
)
def test_a_malformed_file_is_refused(write, text, said):
    with pytest.raises(ClusterError, match=said):
        read_cluster(write("c.yaml", text))


def test_aliases_and_levels_without_end_are_refused(write):
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [{f'*a{i - 1},' * 9}]" for i in range(1, 21))]
    with pytest.raises(ClusterError, match="stands for more than 1000000 values"):
        read_cluster(write("c.yaml", "\n".join(lines)))
    with pytest.raises(ClusterError, match="contains itself by an alias"):
        read_cluster(write("c.yaml", "nodes: &a [*a]"))
    with pytest.raises(ClusterError, match="nested too deeply"):
        read_cluster(write("c.yaml", "[" * 9000 + "]" * 9000))


def test_malformed_prices_and_specs_are_refused(write):
    with pytest.raises(ClusterError, match=r"cost_usd_per_hour\.t4 has the value -1"):
        read_prices(write("p.yaml", "cost_usd_per_hour: {t4: -1}"))
    with pytest.raises(ClusterError, match="'v100' is not type:count"):
        read_cluster("v100")
    with pytest.raises(ClusterError, match="No such file"):
        read_cluster("nowhere.yaml")


@pytest.mark.parametrize("number", ["1:30", "010", "1:30.5"])
def test_what_only_yaml_1_1_takes_for_a_number_is_refused(write, number):
    with pytest.raises(ClusterError, match=re.escape(number)):
        read_prices(write("p.yaml", f"cost_usd_per_hour: {{t4: {number}}}"))


def test_numbers_may_have_exponents_and_underscores(write):
    text = "cost_usd_per_hour: {a: 1.0e-1, b: 1_0, c: .5, d: +2.5e+1}"
    assert read_prices(write("p.yaml", text)) == {"a": 0.1, "b": 10.0, "c": 0.5, "d": 25.0}
