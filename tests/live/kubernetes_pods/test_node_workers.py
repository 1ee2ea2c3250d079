"""Workers of a node, from its labels and resources, against what device plugins publish."""

from __future__ import annotations

import pytest

from agent.kubernetes.node.workers import (
    PLUGIN_AWAY_S,
    NodeInventory,
    placement_obstacle,
    workers_of,
)
from scheduler.errors import ClusterError, InputError


def labelled(make_node, labels, **capacity):
    node = make_node()
    node["metadata"]["labels"] = {"kubernetes.io/hostname": "n1"} | labels
    counts = {name.replace("__", "/").replace("_", "."): str(n) for name, n in capacity.items()}
    return node | {"status": {"capacity": counts, "allocatable": dict(counts)}}


def test_product_labels_become_worker_types(make_node):
    kinds = [(w.index, w.worker_type, w.resource) for w in workers_of(make_node(2))]
    assert kinds == [
        (0, "v100-sxm2-16gb", "nvidia.com/gpu"),
        (1, "v100-sxm2-16gb", "nvidia.com/gpu"),
    ]
    names = {"Tesla-V100-SXM2-16GB": "v100"}
    assert {w.worker_type for w in workers_of(make_node(2), names=names)} == {"v100"}


def test_mig_instances_are_workers_of_their_own_types(make_node):
    node = labelled(make_node, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"})
    node["status"] = {"capacity": {"nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-3g.20gb": "1"}}
    assert [w.worker_type for w in workers_of(node)] == [
        "a100-sxm4-40gb-mig-1g.5gb",
        "a100-sxm4-40gb-mig-1g.5gb",
        "a100-sxm4-40gb-mig-3g.20gb",
    ]


def test_amd_gpus_are_named_by_their_label(make_node):
    node = labelled(make_node, {"amd.com/gpu.product-name": "AMD_Instinct_MI300X"})
    node["status"] = {"capacity": {"amd.com/gpu": "1"}}
    assert [(w.worker_type, w.resource) for w in workers_of(node)] == [
        ("amd-instinct-mi300x", "amd.com/gpu")
    ]


def test_replicas_of_a_shared_gpu_are_one_worker(make_node):
    labels = {
        "nvidia.com/gpu.product": "Tesla-T4-SHARED",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.replicas": "2",
    }
    node = labelled(make_node, labels)
    node["status"] = {"capacity": {"nvidia.com/gpu": "4"}, "allocatable": {"nvidia.com/gpu": "4"}}
    assert [(w.worker_type, w.sharing) for w in workers_of(node)] == [("t4", "time-slicing")] * 2


def test_an_unknown_way_of_sharing_is_refused(make_node):
    with pytest.raises(InputError, match="'half'"):
        workers_of(make_node(), sharing={"v100-sxm2-16gb": "half"})


def test_a_node_without_accelerators_needs_declared_workers(make_node):
    node = make_node()
    node["status"] = {"capacity": {"cpu": "4"}}
    with pytest.raises(ClusterError, match="--worker cpu:4"):
        NodeInventory(instance="x").read_node(node)
    inventory = NodeInventory(instance="x", plain=("cpu", "cpu"))
    inventory.read_node(node)
    assert [(w.worker_type, w.resource) for w in inventory.workers] == [("cpu", "")] * 2
    assert inventory.problems() == {}


def test_gpus_in_bad_health_have_a_problem_and_stay_on_the_list(make_node):
    inventory = NodeInventory(instance="x")
    inventory.read_node(make_node(4))
    sick = make_node(4)
    sick["status"]["allocatable"]["nvidia.com/gpu"] = "3"
    inventory.read_node(sick)
    assert set(inventory.problems()) == {3}
    gone = make_node(4)
    gone["status"] = {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}
    inventory.read_node(gone)
    assert len(inventory.workers) == 4
    assert set(inventory.problems()) == {0, 1, 2, 3}


def test_a_pod_keeps_its_worker_while_the_device_plugin_restarts(make_node):
    now_s = [1000.0]
    inventory = NodeInventory(instance="x", clock=lambda: now_s[0])

    def offers(count):
        node = make_node(2)
        node["status"]["allocatable"]["nvidia.com/gpu"] = str(count)
        inventory.read_node(node)
        return set(inventory.problems())

    assert offers(2) == set()
    inventory.hold({1}, bound={1})
    assert offers(1) == {0}  # the idle worker is missing, whichever device it is
    assert offers(0) == {0}
    now_s[0] += PLUGIN_AWAY_S - 1.0
    assert offers(0) == {0}
    assert offers(2) == set()
    now_s[0] += 2.0
    assert offers(0) == {0}
    now_s[0] += PLUGIN_AWAY_S
    assert offers(0) == {0, 1}
    assert "for 300 s" in inventory.problems()[1]
    inventory.hold({1}, bound=set())  # nothing new starts there
    now_s[0] += 1.0
    assert offers(0) == {0, 1}


PRODUCT = "nvidia.com/gpu.product"


def test_a_label_that_disappears_is_not_another_type(make_node):
    """Feature discovery takes all its labels off when it restarts."""
    inventory = NodeInventory(instance="x")
    shared = {
        PRODUCT: "Tesla-T4-SHARED",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.replicas": "2",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }
    inventory.read_node(labelled(make_node, shared, nvidia_com__gpu=4))
    before = inventory.workers
    assert [(w.worker_type, w.replicas) for w in before] == [("t4", 2)] * 2
    for _ in range(3):
        inventory.read_node(labelled(make_node, {}, nvidia_com__gpu=4))
        assert inventory.workers == before
        assert inventory.problems() == {}
    inventory.read_node(labelled(make_node, shared, nvidia_com__gpu=4))
    assert inventory.workers == before


def test_amds_label_may_disappear_too(make_node):
    inventory = NodeInventory(instance="x")
    named = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X"}
    for labels in (named, {}, {}, named):
        inventory.read_node(labelled(make_node, labels, amd_com__gpu=1))
        assert [w.worker_type for w in inventory.workers] == ["amd-instinct-mi300x"]


def test_another_type_is_believed_if_it_is_told_twice_and_nothing_runs_there(make_node):
    inventory = NodeInventory(instance="x")

    def told(product):
        inventory.read_node(labelled(make_node, {PRODUCT: product}, nvidia_com__gpu=1))
        return inventory.workers[0].worker_type

    assert told("Tesla-T4") == "t4"
    assert told("Tesla-P4") == "t4"
    assert told("Tesla-T4") == "t4"
    assert told("Tesla-P4") == "t4"  # the first time again
    inventory.hold({0}, bound={0})
    assert told("Tesla-P4") == "t4"
    assert told("Tesla-P4") == "t4"
    inventory.hold(set(), bound=set())
    assert told("Tesla-P4") == "p4"


def test_more_workers_of_the_same_type_are_believed_at_once(make_node):
    inventory = NodeInventory(instance="x")
    inventory.read_node(make_node(2))
    inventory.hold({0}, bound={0})
    inventory.read_node(make_node(4))
    assert len(inventory.workers) == 4


@pytest.mark.parametrize(
    ("taint", "tolerations", "stands_in_the_way"),
    [
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, [], True),
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, [{"key": "a", "value": "b"}], False),
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, [{"key": "a", "value": "c"}], True),
        ({"key": "a", "effect": "NoExecute"}, [{"key": "a", "operator": "Exists"}], False),
        ({"key": "a", "effect": "NoExecute"}, [{"operator": "Exists"}], False),
        (
            {"key": "a", "effect": "NoExecute"},
            [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
            True,
        ),
        ({"key": "a", "effect": "PreferNoSchedule"}, [], False),
    ],
)
def test_taints_keep_new_pods_away_as_in_kubernetes(taint, tolerations, stands_in_the_way):
    assert bool(placement_obstacle({"spec": {"taints": [taint]}}, tolerations)) is stands_in_the_way


@pytest.mark.parametrize("first", ["labels", "resources"])
def test_a_node_that_begins_to_share_keeps_its_workers_whatever_it_says_first(make_node, first):
    """The device plugin counts replicas; feature discovery reports them, sooner or later."""

    def told(count, replicas):
        node = make_node(count)
        node["metadata"]["labels"] |= {
            "nvidia.com/gpu.count": "4",
            "nvidia.com/gpu.replicas": str(replicas),
            "nvidia.com/gpu.sharing-strategy": "mps" if replicas > 1 else "none",
        }
        return node

    inventory = NodeInventory(instance="x")
    inventory.read_node(told(4, 1))
    before = inventory.workers
    assert [w.sharing for w in before] == ["exclusive"] * 4
    inventory.read_node(told(4, 2) if first == "labels" else told(8, 1))
    assert inventory.workers == before
    inventory.read_node(told(8, 2))
    assert [(w.sharing, w.replicas) for w in inventory.workers] == [("mps", 2)] * 4
    assert inventory.problems() == {}
    inventory.read_node(told(4, 1))
    assert [w.sharing for w in inventory.workers] == ["exclusive"] * 4


def test_with_parts_of_gpus_the_count_of_whole_ones_says_nothing(make_node):
    inventory = NodeInventory(instance="x")
    for gpus in (1, 2):
        node = make_node(gpus)
        node["metadata"]["labels"] |= {
            "nvidia.com/gpu.count": "4",
            "nvidia.com/mig.strategy": "mixed",
        }
        inventory.read_node(node)
        assert len(inventory.workers) == gpus
