"""Clusters number their workers node by node, and a malformed spec is refused with its text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.domain.cluster import Cluster, Node, WorkerType, parse_cluster_spec
from scheduler.errors import ClusterError, ParameterError


def test_workers_are_numbered_node_by_node():
    cluster = Cluster(
        worker_types=(
            WorkerType(name="a", cost_usd_per_hour=2.0),
            WorkerType(name="b"),
            WorkerType(name="none"),
        ),
        nodes=(
            Node(name="x", workers=("b", "a")),
            Node(name="empty", workers=()),
            Node(name="y", workers=("a", "a")),
        ),
    )
    assert cluster.workers == 4
    assert cluster.worker_type_of.tolist() == [1, 0, 0, 0]
    assert cluster.node_of.tolist() == [0, 0, 2, 2]
    assert cluster.capacity.tolist() == [3.0, 1.0, 0.0]
    assert cluster.cost_usd_per_hour.tolist() == [2.0, 0.0, 0.0]
    assert cluster.spec == "a:3,b:1,none:0"


def test_a_spec_fills_nodes_of_one_type_and_leaves_the_last_one_short():
    cluster = parse_cluster_spec(" v100:5 , k80:2", workers_per_node=4, prices={"k80": 0.5})
    assert [(n.name, len(n.workers)) for n in cluster.nodes] == [
        ("v100-0", 4),
        ("v100-1", 1),
        ("k80-0", 2),
    ]
    assert cluster.spec == "v100:5,k80:2"
    assert cluster.cost_usd_per_hour.tolist() == [0.0, 0.5]


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=5), per_node=st.integers(1, 9))
def test_a_spec_survives_a_round_trip(counts, per_node):
    spec = ",".join(f"type-{k}:{count}" for k, count in enumerate(counts))
    cluster = parse_cluster_spec(spec, workers_per_node=per_node)
    assert cluster.spec == spec
    assert cluster.capacity.tolist() == counts
    assert all(1 <= len(node.workers) <= per_node for node in cluster.nodes)
    assert len(cluster.nodes) == sum(math.ceil(count / per_node) for count in counts)


@pytest.mark.parametrize(
    "part", ["", "v100", "v100:", ":4", "v100:0", "v100:-1", "v100:x", "v100:1.5", "v100: 4"]
)
def test_a_malformed_part_of_a_spec_is_named(part):
    with pytest.raises(ClusterError, match="is not type:count") as refused:
        parse_cluster_spec(f"k80:1,{part}")
    assert f"'{part}'" in str(refused.value)
    assert "v100:4,p100:2" in str(refused.value)


def test_a_type_listed_twice_is_refused():
    with pytest.raises(ClusterError, match="worker type 'v100' is listed twice"):
        parse_cluster_spec("v100:1,v100:2")


def test_nodes_without_room_are_refused():
    with pytest.raises(ParameterError, match="workers_per_node is 0; it must be a whole"):
        parse_cluster_spec("v100:4", workers_per_node=0)


def test_a_cluster_refuses_what_cannot_be():
    kind = WorkerType(name="a")
    with pytest.raises(ClusterError, match="node 'x' is listed twice"):
        Cluster(worker_types=(kind,), nodes=(Node(name="x", workers=("a",)),) * 2)
    with pytest.raises(ClusterError, match=r"node 'x' has a worker of type 'b', .* types: a"):
        Cluster(worker_types=(kind,), nodes=(Node(name="x", workers=("b",)),))


def test_a_cluster_may_wait_for_its_first_node():
    cluster = Cluster(worker_types=(), nodes=())
    assert (cluster.workers, cluster.spec) == (0, "")
    assert (len(cluster.capacity), len(cluster.node_of), len(cluster.cost_usd_per_hour)) == (0,) * 3


@pytest.mark.parametrize("price", [-1.0, math.inf, math.nan])
def test_a_worker_type_refuses_a_price_that_is_none(price):
    with pytest.raises(ClusterError, match="worker type 'a': cost_usd_per_hour is"):
        WorkerType(name="a", cost_usd_per_hour=price)


def test_a_worker_type_needs_a_name():
    with pytest.raises(ClusterError, match="needs a name"):
        WorkerType(name="")
