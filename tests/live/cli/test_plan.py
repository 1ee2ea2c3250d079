"""``leasehold plan``: from a config.json to a table, JSON and remedies."""

from __future__ import annotations

import json
import re

import pytest

GPT2 = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


@pytest.fixture
def plan(leasehold, tmp_path):
    """Return a function that runs the command for a model's config."""

    def run(config, *more):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "config.json").write_text(text)
        return leasehold("plan", "model", *more)

    return run


def test_a_table_has_each_way_and_what_it_costs(plan):
    ran = plan(GPT2, "--cluster", "t4:4,v100:8", "--batch", 64)
    assert ran.code == 0, ran.err
    assert "model: 124 million parameters, 12 layers" in ran.out
    rows = [line.split() for line in ran.out.splitlines() if line.startswith(("t4", "v100"))]
    assert [(row[0], row[1]) for row in rows] == [
        *(("t4", str(n)) for n in (1, 2, 4)),
        *(("v100", str(n)) for n in (1, 2, 4, 8)),
    ]
    assert "USD/M tokens" in ran.out


def test_json_has_the_same_and_a_breakdown(plan):
    ran = plan(GPT2, "--cluster", "v100:8", "--batch", 64, "--workers", "2,4,16", "--json")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert found["model"]["parameters"] == 124_439_808
    ways = found["ways"]
    assert [(way["workers"], way["reason"]) for way in ways] == [
        *((2, ""), (4, "")),
        (16, "the cluster has 8"),
    ]
    for way in ways[:2]:
        assert sum(way["parts_s"].values()) == pytest.approx(1 / way["steps_per_s"])
        sizes = way["plan"]
        assert sizes["tensor"] * sizes["pipeline"] * sizes["data"] == way["workers"]


def test_what_does_not_fit_says_by_how_much_and_what_memory_costs(plan):
    ran = plan(LLAMA, "--cluster", "v100:16", "--batch", 64, "--sequence", 2048)
    assert ran.code == 0
    assert re.search(
        r"1 v100: \d\.\d GB too much for the 15\.0 GB that may be filled, even with whole b1 "
        r"recompute offload",
        ran.out,
    )
    assert "16 v100: " in ran.out
    assert "fits and costs" in ran.out


def test_a_type_that_cannot_be_used_hides_no_other(plan):
    ran = plan(GPT2, "--cluster", "v100:1,h100:1,abacus:1", "--batch", 8, "--precision", "bf16")
    assert ran.code == 0
    assert re.search(r"^h100 +1 ", ran.out, re.MULTILINE)
    assert "1 v100: precision is 'bf16'; the accelerator has fp16, fp32" in ran.out
    assert "1 abacus: no accelerator is named 'abacus'" in ran.out


def test_the_nodes_of_a_file_bound_tensor_groups(plan, tmp_path):
    (tmp_path / "cluster.yaml").write_text(
        "worker_types: {v100: {cost_usd_per_hour: 2}, t4: {}}\n"
        "nodes: [{name: n, count: 4, workers: {v100: 2}}]\n"
    )
    ran = plan(LLAMA, "--cluster", "cluster.yaml", "--batch", 8, "--workers", 8, "--json")
    ways = json.loads(ran.out)["ways"]
    assert [way["worker_type"] for way in ways] == ["v100"]  # there is no t4
    assert ways[0]["plan"]["tensor"] <= 2


def test_prices_are_found_by_any_name_of_an_accelerator(plan):
    ran = plan(GPT2, "--cluster", "A100_80G:1,npu:1", "--batch", 8, "--json")
    costs = [way["usd_per_million_tokens"] for way in json.loads(ran.out)["ways"]]
    assert costs[0] > 0
    assert costs[1] is None


def test_a_model_that_fits_nowhere_is_an_exit_code(plan):
    ran = plan(LLAMA, "--cluster", "t4:1", "--batch", 8)
    assert ran.code == 6
    assert "GB too much" in ran.out


def test_a_users_accelerator_counts(plan, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "My_NPU: {tflops: {fp16: 500}, memory_gb: 96, memory_gb_per_s: 2000, link_gb_per_s: 200,\n"
        "  per_node: 8, network_gb_per_s: 50}\n"
    )
    ran = plan(GPT2, "--cluster", "my-npu:8", "--batch", 64, "--hardware", "mine.yaml")
    assert ran.code == 0
    assert "my-npu" in ran.out


@pytest.mark.parametrize(
    ("config", "more", "said"),
    [
        ("{", (), "config.json cannot be read"),
        ("[]", (), "config.json is a list; it must be an object"),
        (GPT2 | {"model_type": "t5"}, (), "model_type is 't5'; the known ones are bert"),
        (GPT2, ("--sequence", 4096), "a sample has 4096 tokens; the model takes 1 to 1024"),
        (GPT2, ("--workers", "2,x"), "--workers is '2,x'; give whole numbers"),
        (GPT2, ("--precision", "fp8"), "precision is 'fp8'; the accelerator has fp16, fp32"),
        (GPT2, ("--cluster", "v1000:8"), "did you mean 'v100'"),
        (GPT2, ("--hardware", "none.yaml"), "none.yaml"),
    ],
)
def test_what_cannot_be_used_is_named(plan, config, more, said):
    cluster = () if "--cluster" in more else ("--cluster", "v100:8")
    ran = plan(config, "--batch", 64, *cluster, *more)
    assert ran.code == 2
    assert said in ran.err


LAYERS = {
    "name": "mine",
    "layers": [
        {"parameters": 2e7, "flops": 1e6, "kept_bytes": 2e6, "output_bytes": 2e6},
        {"repeat": 13, "parameters": 7e6, "flops": 8e9, "kept_bytes": 8e7, "output_bytes": 2e6},
        {"parameters": 2e7, "flops": 2e10, "kept_bytes": 2e8, "output_bytes": 1e8},
    ],
    "measured": [
        {
            "worker_type": "t4",
            "microbatch": 4,
            "forward_s": [0.001, 0.01, 0.03],
            "backward_s": [0.001, 0.02, 0.05],
        }
    ],
}


def test_a_list_of_layers_is_planned_with_its_measured_times(leasehold, tmp_path):
    (tmp_path / "mine.json").write_text(json.dumps(LAYERS))
    more = ("--cluster", "t4:8,v100:2", "--batch", 64)
    ran = leasehold("plan", "mine.json", *more, "--workers", "1,2")
    assert ran.code == 0, ran.err
    assert "mine: 131 million parameters, 15 layers; steps of 64 samples, fp32" in ran.out
    assert "samples/s" in ran.out
    ran = leasehold("plan", "mine.json", *more, "--workers", "1,2", "--json")
    found = json.loads(ran.out)
    assert found["model"]["parameters"] == 131_000_000
    measured = {(way["worker_type"], way["is_measured"]) for way in found["ways"]}
    assert measured == {("t4", True), ("v100", False)}
    one = found["ways"][0]
    passes_s = 16 * (0.001 + 0.001 + 13 * 0.03 + 0.08)
    assert one["parts_s"]["compute_s"] == pytest.approx(passes_s, rel=0.02)
    assert one["stages"] == [15]


def test_a_table_of_layers_takes_its_step_from_the_options(leasehold, tmp_path):
    heading = "repeat,parameters,flops,kept_bytes,output_bytes"
    (tmp_path / "mine.csv").write_text(f"{heading}\n12,7e6,8e9,8e7,2e6\n")
    more = ("--cluster", "v100:2", "--batch", 64, "--sequence", 512, "--precision", "fp16")
    ran = leasehold("plan", "mine.csv", *more)
    assert ran.code == 0, ran.err
    assert "12 layers; steps of 64 samples with 512 tokens, fp16" in ran.out


def test_stages_of_unlike_sizes_are_shown(leasehold, tmp_path):
    layers = [one | {"parameters": 4e8} for one in LAYERS["layers"]]
    (tmp_path / "mine.json").write_text(json.dumps({"layers": layers}))
    ran = leasehold("plan", "mine.json", "--cluster", "v100:8", "--batch", 64, "--workers", 8)
    assert ran.code == 0, ran.err
    assert re.search(r"8 v100: stages of [\d, ]+ layers", ran.out)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--precision", "fp16"), "--precision is 'fp16', but mine.json is for 'fp32'"),
        (("--cluster", "t4:3", "--batch", 2), "cannot be split evenly over 3 workers; measured"),
    ],
)
def test_what_contradicts_the_layers_is_named(leasehold, tmp_path, more, said):
    (tmp_path / "mine.json").write_text(json.dumps({"precision": "fp32"} | LAYERS))
    ran = leasehold("plan", "mine.json", "--cluster", "t4:8", "--batch", 64, *more)
    assert ran.code in {2, 6}
    assert said in ran.out + ran.err


def test_two_cuts_of_one_plan_are_told_apart(leasehold, tmp_path):
    layers = [
        {"parameters": 4e9, "flops": 1e10, "kept_bytes": 0, "output_bytes": 1},
        {"repeat": 4, "parameters": 1e8, "flops": 1e12, "kept_bytes": 0, "output_bytes": 1},
        {"parameters": 1.2e9, "flops": 1e12, "kept_bytes": 0, "output_bytes": 1},
    ]
    (tmp_path / "cut.json").write_text(json.dumps({"layers": layers}))
    (tmp_path / "npu.yaml").write_text(
        "npu: {tflops: {fp32: 67}, memory_gb: 72.9, memory_gb_per_s: 3350, link_gb_per_s: 450,\n"
        "  per_node: 8, network_gb_per_s: 50}\n"
    )
    more = ("--cluster", "npu:2", "--batch", 63, "--workers", 2, "--hardware", "npu.yaml")
    ran = leasehold("plan", "cut.json", *more)
    assert ran.code == 0, ran.err
    assert "2 npu: stages of 2, 4 layers" in ran.out
    assert "pp2 b1 with stages of 3, 3 layers would be fastest and needs 0.7 GB too much" in ran.out
    (way,) = json.loads(leasehold("plan", "cut.json", *more, "--json").out)["ways"]
    assert (way["stages"], way["unbounded_stages"]) == ([2, 4], [3, 3])


def test_a_file_with_layers_is_never_taken_for_a_config(leasehold, tmp_path):
    (tmp_path / "map.yaml").write_text("layers: {a: 1}\n")
    (tmp_path / "LAYER.YAML").write_text("layer: []\n")
    for name in ("map.yaml", "LAYER.YAML"):
        ran = leasehold("plan", name, "--cluster", "t4:8", "--batch", 64)
        assert ran.code == 2
        assert "layer" in ran.err
        assert "model_type" not in ran.err


def test_json_and_yaml_of_one_content_are_one_model(leasehold, tmp_path):
    documents = {"plain": GPT2, "whole": {"batch": 8, "config": GPT2}}
    answers = []
    for name, document in documents.items():
        for suffix in ("json", "yaml"):
            (tmp_path / f"{name}.{suffix}").write_text(json.dumps(document))
            ran = leasehold(
                "plan", f"{name}.{suffix}", "--cluster", "t4:1", "--batch", 64, "--json"
            )
            assert ran.code == 0, ran.err
            answers.append(json.loads(ran.out)["ways"])
    assert all(one == answers[0] for one in answers)


def test_a_name_that_is_twice_in_a_users_file_is_refused(plan, tmp_path):
    (tmp_path / "twice.yaml").write_text("npu: {}\nnpu: {}\n")
    ran = plan(GPT2, "--cluster", "npu:8", "--batch", 64, "--hardware", "twice.yaml")
    assert ran.code == 2
    assert "the key 'npu' is there twice" in ran.err


def test_a_plan_is_printed_for_a_framework(plan):
    common = (LLAMA, "--cluster", "a100:16", "--batch", 64, "--sequence", 2048, "--workers")
    ran = plan(*common, 16, "--format", "megatron")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("--tensor-model-parallel-size ")
    assert len(ran.out.splitlines()) == 1
    # DeepSpeed has no interleaved schedule, which is the fastest here.
    assert "--num-virtual-stages" in ran.out
    ran = plan(*common, 16, "--format", "deepspeed")
    assert json.loads(ran.out)["train_batch_size"] == 64
    assert "num_stages=" in ran.err
    ran = plan(*common, "8,16", "--format", "torchtitan", "--precision", "bf16")
    assert ran.code == 2
    assert "2 ways fit; name one, such as --cluster a100:16 --workers 16" in ran.err
    ran = plan(*common, 16, "--format", "horovod")
    assert ran.code == 2
    assert "--format is 'horovod'; it may be megatron, deepspeed, torchtitan" in ran.err
    ran = plan(*common, 16, "--format", "torchtitan")
    assert ran.code == 2
    assert "--format torchtitan knows no fp16; plan for --precision bf16" in ran.err
    ran = plan(*common, 16, "--format", "megatron", "--json")
    assert ran.code == 2
    assert "--format has a form of its own; leave out --json" in ran.err
    ran = plan(LLAMA, "--cluster", "t4:1", "--batch", 64, "--format", "deepspeed")
    assert (ran.code, ran.out) == (6, "")
    assert "too much" in ran.err
