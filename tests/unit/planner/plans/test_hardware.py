"""The catalogue: names, users' files, and what physics allows."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from planner.plans.hardware import read_hardware
from scheduler.errors import InputError

MINE = """
Mine:
  tflops: {fp16: 100}
  memory_gb: 10
  memory_gb_per_s: 500
  link_gb_per_s: 10
  host_gb_per_s: 10
  per_node: 2
  network_gb_per_s: 1
"""


def test_every_accelerator_is_plausible_and_has_a_source():
    for name, one in read_hardware().accelerators.items():
        assert one.source, name
        rates = [one.tflops[kind] for kind in ("fp32", "tf32", "fp16", "fp8") if kind in one.tflops]
        assert rates == sorted(rates), name
        assert one.memory_gb_per_s > one.link_gb_per_s, name
        # A byte of memory serves 15 to 500 operations in half precision on all of them.
        assert 15 < one.tflops["fp16"] * 1e3 / one.memory_gb_per_s < 500, name


def test_worker_types_are_found_by_the_names_that_people_use():
    hardware = read_hardware()
    assert hardware.find("A100_80G") is hardware.find("a100-80")
    assert hardware.find("v100").flops("fp16") == 125e12
    with pytest.raises(InputError, match="did you mean 'h100'"):
        hardware.find("hh100")
    with pytest.raises(InputError, match="precision is 'fp8'; the accelerator has fp16, fp32"):
        hardware.find("v100").flops("fp8")


def test_no_two_accelerators_share_a_name():
    found = read_hardware().accelerators
    names = [name for one, kind in found.items() for name in (one, *kind.also)]
    assert len(names) == len(set(names))


def test_a_users_file_adds_and_replaces():
    hardware = read_hardware(yaml.safe_load(MINE + MINE.replace("Mine", "t4")))
    assert hardware.find("mine") == hardware.find("t4")
    assert hardware.find("v100").memory_gb == 16


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("memory_gb: 10", "memory_gb: 0", "Mine.memory_gb is 0: Expected `float` > 0.0"),
        ("per_node: 2", "per_node: many", "Mine.per_node is 'many'"),
        ("per_node: 2", "per_nodes: 2", "Mine is .*unknown field `per_nodes`"),
        ("{fp16: 100}", "100", "Mine.tflops is 100: Expected `object`"),
        ("memory_gb: 10", "memory_gb: .nan", "Mine.memory_gb is nan"),
        (MINE, "[]", "mine.yaml is \\[\\]; it must map names"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(old, new, said):
    with pytest.raises(InputError, match=said):
        read_hardware(yaml.safe_load(MINE.replace(old, new)), place="mine.yaml")


def test_catalogues_of_the_same_content_are_equal_so_that_found_plans_count_for_both():
    own = {"npu": msgspec.to_builtins(read_hardware().find("a100"))}
    first, second = (read_hardware(own, place="hardware.yaml") for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != read_hardware()
    assert read_hardware({}, place="hardware.yaml") == read_hardware()
    own["npu"]["memory_gb"] += 1
    assert read_hardware(own, place="hardware.yaml") != first
