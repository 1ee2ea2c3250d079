"""Layers of modules, traced with fake tensors, against shapes known by formula and by hand."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: make test-torch", allow_module_level=True)

import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MixtralConfig

from leasehold.torch import describe_layers
from planner.plans.hugging_face import read_config

TOKENS = {"dtype": torch.long}


def count(document, name):
    return sum(one["repeat"] * one[name] for one in document["layers"])


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(),
        LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=6),
        LlamaConfig(num_key_value_heads=8),
    ],
    ids=["gpt2", "llama", "llama-7b-with-shared-keys"],
)
def test_transformers_have_the_parameters_and_flops_of_their_formulas(config):
    config.use_cache = False

    def make():
        tokens = torch.zeros(1, 1024, **TOKENS)
        return AutoModelForCausalLM.from_config(config), {"input_ids": tokens}

    found = describe_layers(make)
    shape = read_config(config.to_dict(), name="m", sequence=1024)
    assert found["sequence"] == 1024
    assert found["precision"] == "fp32"
    assert count(found, "parameters") == shape.parameters
    assert count(found, "flops") == shape.layers * shape.layer_flops + shape.head_flops
    blocks = [one for one in found["layers"] if one["repeat"] > 1]
    assert sum(one["repeat"] for one in blocks) in {shape.layers, shape.layers - 1}
    for one in blocks:
        assert one["output_bytes"] == 4 * 1024 * shape.hidden
        # GPT-2's activation function keeps each of its steps.
        whole = 1024 * (shape.kept_whole + shape.kept_split) * 2
        assert 0.9 * whole < one["kept_bytes"] < (1.2 if shape.is_gated else 2) * whole


class Skip(nn.Module):
    """Two matrices in a list, beside a parameter and a tied head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.position = nn.Parameter(torch.zeros(1, 6, 4))
        self.body = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)) for _ in range(2))
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        found = self.embedding(tokens) + self.position
        for one in self.body:
            found = found + one(found)
        return self.head(found)


def test_layers_are_counted_once_and_in_order():
    found = describe_layers(lambda: (Skip().bfloat16(), torch.zeros(1, 6, **TOKENS)))
    assert [(one["name"], one["parameters"]) for one in found["layers"]] == [
        ("embedding", 10 * 4 + 6 * 4),
        *(("body.0.0", 40), ("body.0.1", 36), ("body.1.0", 40), ("body.1.1", 36)),
        ("head", 0),
    ]
    assert found["name"] == "Skip"
    assert found["precision"] == "bf16"
    assert found["layers"][1]["flops"] == 2 * 6 * 4 * 8
    assert found["layers"][1]["output_bytes"] == 2 * 6 * 8
    assert found["layers"][2]["kept_bytes"] == 2 * 6 * 8  # its input
    assert found["layers"][-1]["output_bytes"] == 2 * 6 * 10


def test_equal_layers_are_one_entry():
    def make():
        blocks = (nn.TransformerEncoderLayer(64, 4, batch_first=True) for _ in range(5))
        return nn.Sequential(*blocks), torch.zeros(1, 16, 64)

    (entry,) = describe_layers(make)["layers"]
    assert entry["repeat"] == 5
    assert entry["parameters"] == sum(
        one.numel() for one in nn.TransformerEncoderLayer(64, 4).parameters()
    )


class Before(nn.Module):
    """Multiplies before its only layer, and takes a mask beside the tokens."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(8, 16))
        self.layers = nn.ModuleList([nn.Linear(16, 4)])

    def forward(self, mask, x, tokens):
        return self.layers[0](nn.functional.gelu(x @ self.first))


def test_work_before_the_first_layer_counts_for_it():
    def make():
        mask = torch.zeros(1, 1, 32, 32, dtype=torch.bool)
        return Before(), (mask, torch.zeros(1, 5, 8), torch.zeros(1, 5, **TOKENS))

    found = describe_layers(make)
    (layer,) = found["layers"]
    assert found["sequence"] == 5
    assert layer["parameters"] == 8 * 16 + 16 * 4 + 4
    assert layer["flops"] == 2 * 5 * 16 * (8 + 4)
    assert layer["kept_bytes"] == 4 * 5 * (8 + 16 + 16)


class Chooser(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Linear(2, 2), "must return a module and the inputs of one sample"),
        (lambda: (nn.Linear(2, 2), torch.zeros(3, 2)), r"have the shapes \[\(3, 2\)\]"),
        (lambda: (nn.Linear(2, 2), torch.zeros(1, 0, 2)), r"have the shapes \[\(1, 0, 2\)\]"),
        (lambda: (nn.Linear(2, 2).double(), torch.zeros(1, 2).double()), "are torch.float64"),
        (lambda: (Chooser(2, 2), torch.zeros(1, 2)), "Chooser cannot be traced without values"),
    ],
)
def test_what_cannot_be_traced_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        describe_layers(make)


def test_a_function_is_planned_from_the_command_line(tmp_path):
    (tmp_path / "models.py").write_text(
        "import torch\n"
        "def mlp():\n"
        "    print('making it')\n"
        "    layers = [torch.nn.Linear(4096, 4096) for _ in range(12)]\n"
        "    return torch.nn.Sequential(*layers), torch.zeros(1, 4096)\n"
        "def broken():\n"
        "    raise KeyError('size')\n"
        "def leaving():\n"
        "    raise SystemExit(0)\n"
        "def lacking():\n"
        "    import no_such_library\n"
    )

    def plan(model, *more):
        command = [sys.executable, "-m", "leasehold", "plan", model, "--cluster", "v100:4", *more]
        return subprocess.run(
            [*command, "--batch", "64"], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    ran = plan("models:mlp", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["model"]["parameters"] == 12 * (4096 * 4096 + 4096)
    assert all(way["fits"] for way in found["ways"])
    for model, said in [
        ("models:broken", "models:broken failed: KeyError: 'size'"),
        ("models:none", "has no attribute 'none'"),
        ("models:leaving", "models:leaving ends the process; it must return a module"),
        ("models:lacking", "there is no module 'no_such_library'; install it"),
        ("no_models:mlp", "there is no module 'no_models'; run the command in its folder"),
    ]:
        ran = plan(model)
        assert ran.returncode == 2
        assert said in ran.stderr


def test_experts_are_counted_whole():
    config = MixtralConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_local_experts=4
    )
    config.use_cache = False

    def make():
        tokens = torch.zeros(1, 64, **TOKENS)
        return AutoModelForCausalLM.from_config(config), {"input_ids": tokens}

    shape = read_config(config.to_dict(), name="m", sequence=64)
    assert count(describe_layers(make), "parameters") == shape.parameters
