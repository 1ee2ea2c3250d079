"""Parameters and FLOPs against published figures."""

from __future__ import annotations

import pytest

from planner.plans.hugging_face import read_config
from planner.plans.transformer import gpt
from scheduler.errors import InputError

#: Narayanan et al., SC'21, table 1: billions of parameters, heads, hidden size, layers, GPUs,
#: batch, TFLOP/s of each.
TABLE_1 = (
    (1.7, 24, 2304, 24, 32, 512, 137),
    (3.6, 32, 3072, 30, 64, 512, 138),
    (7.5, 32, 4096, 36, 128, 512, 142),
    (18.4, 48, 6144, 40, 256, 1024, 135),
    (39.1, 64, 8192, 48, 512, 1536, 138),
    (76.1, 80, 10240, 60, 1024, 1792, 140),
    (145.6, 96, 12288, 80, 1536, 2304, 148),
    (310.1, 128, 16384, 96, 1920, 2160, 155),
    (529.6, 128, 20480, 105, 2520, 2520, 163),
    (1008.0, 160, 25600, 128, 3072, 3072, 163),
)
#: Table 2: layers, hidden size, heads, batch, GPUs, TFLOP/s of each, days for 300 billion tokens.
TABLE_2 = (
    (96, 12288, 96, 1536, 384, 153, 84),
    (96, 12288, 96, 1536, 768, 149, 43),
    (96, 12288, 96, 1536, 1536, 141, 23),
    (105, 20480, 128, 2240, 560, 171, 156),
    (105, 20480, 128, 2240, 1120, 167, 80),
    (105, 20480, 128, 2240, 2240, 159, 42),
)
OPT = {"model_type": "opt", "vocab_size": 50272, "max_position_embeddings": 2048}
LLAMA = {"model_type": "llama", "max_position_embeddings": 4096, "tie_word_embeddings": False}
#: Parameters as the models' own pages and checkpoints state them.
MODELS = {
    "gpt2": (
        124_439_808,
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024}
        | {"vocab_size": 50257},
    ),
    "gpt2-xl": (
        1_557_611_200,
        {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024}
        | {"vocab_size": 50257},
    ),
    "opt-125m": (
        125_239_296,
        OPT
        | {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
        | {"ffn_dim": 3072, "word_embed_proj_dim": 768},
    ),
    "opt-350m": (
        331_196_416,
        OPT
        | {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16}
        | {"ffn_dim": 4096, "word_embed_proj_dim": 512},
    ),
    "gpt-neo-2.7b": (
        2_651_307_520,
        {"model_type": "gpt_neo", "num_layers": 32, "hidden_size": 2560, "num_heads": 20}
        | {"max_position_embeddings": 2048, "vocab_size": 50257, "intermediate_size": None},
    ),
    "gpt-j-6b": (
        6_050_882_784,
        {"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "n_positions": 2048}
        | {"vocab_size": 50400, "n_inner": None, "tie_word_embeddings": False},
    ),
    "bloom-560m": (
        559_214_592,
        {"model_type": "bloom", "n_layer": 24, "n_embed": 1024, "num_attention_heads": 16}
        | {"vocab_size": 250880, "seq_length": 2048},
    ),
    "bert-large-uncased": (
        335_141_888,
        {"model_type": "bert", "num_hidden_layers": 24, "hidden_size": 1024}
        | {"num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30522}
        | {"max_position_embeddings": 512},
    ),
    "roberta-base": (
        124_645_632,
        {"model_type": "roberta", "num_hidden_layers": 12, "hidden_size": 768}
        | {"num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 50265}
        | {"max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    "pythia-1b": (
        1_011_781_632,
        {"model_type": "gpt_neox", "num_hidden_layers": 16, "hidden_size": 2048}
        | {"num_attention_heads": 8, "intermediate_size": 8192, "vocab_size": 50304}
        | {"max_position_embeddings": 2048, "tie_word_embeddings": False},
    ),
    "llama-2-7b": (
        6_738_415_616,
        LLAMA
        | {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
        | {"intermediate_size": 11008, "vocab_size": 32000},
    ),
    "llama-3-8b": (
        8_030_261_248,
        LLAMA
        | {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
        | {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256},
    ),
    "mistral-7b": (
        7_241_732_096,
        LLAMA
        | {"model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
        | {"vocab_size": 32000},
    ),
    "mixtral-8x7b": (
        46_702_792_704,
        LLAMA
        | {"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
        | {"vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen2-7b": (
        7_615_616_512,
        LLAMA
        | {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584}
        | {"num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944}
        | {"vocab_size": 152064},
    ),
    "gemma-2b": (
        2_506_172_416,
        {"model_type": "gemma", "num_hidden_layers": 18, "hidden_size": 2048, "head_dim": 256}
        | {"num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 16384}
        | {"vocab_size": 256000, "max_position_embeddings": 8192},
    ),
    "phi-2": (
        2_779_683_840,
        {"model_type": "phi", "num_hidden_layers": 32, "hidden_size": 2560}
        | {"num_attention_heads": 32, "intermediate_size": 10240, "vocab_size": 51200}
        | {"max_position_embeddings": 2048, "tie_word_embeddings": False},
    ),
}


def table_model(layers, hidden, heads):
    return gpt(layers=layers, hidden=hidden, heads=heads, vocabulary=51200, sequence=2048)


@pytest.mark.parametrize(("billions", "heads", "hidden", "layers"), [row[:4] for row in TABLE_1])
def test_parameters_are_those_of_table_1(billions, heads, hidden, layers):
    assert round(table_model(layers, hidden, heads).parameters / 1e9, 1) == billions


@pytest.mark.parametrize("row", TABLE_2)
def test_the_days_of_table_2_follow_from_the_flops(row):
    layers, hidden, heads, batch, gpus, tflops, days = row
    model = table_model(layers, hidden, heads)
    # Forward, backward and the forward pass once more; the head is not recomputed.
    flops = batch * (4 * layers * model.layer_flops + 3 * model.head_flops)
    steps = 300e9 / (batch * 2048)
    found = steps * flops / (gpus * tflops * 1e12) / 86400
    # Both printed figures are whole numbers.
    assert found == pytest.approx(days, abs=0.5 + days * 0.5 / tflops)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_that_people_state(name):
    parameters, config = MODELS[name]
    assert read_config(config, name=name).parameters == parameters


def test_a_mixture_computes_with_its_active_experts_alone():
    mixture = read_config(MODELS["mixtral-8x7b"][1], name="mixtral", sequence=2048)
    plain = read_config(MODELS["mistral-7b"][1], name="mistral", sequence=2048)
    experts = 2 * 2048 * mixture.expert_parameters
    router = 2 * 2048 * 4096 * 8
    assert mixture.layer_flops == plain.layer_flops + experts + router


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "t5"}, "model_type is 't5'; the known ones are bert, bloom"),
        ({"model_type": None}, "model_type is None"),
        ({"n_layer": 0}, "n_layer is 0; it must be a positive whole number"),
        ({"n_layer": True}, "n_layer is True"),
        ({"n_embd": 2.5}, "n_embd is 2.5"),
        ({"n_head": 7}, "hidden size 768 is not a multiple of its 7 attention heads"),
        ({"vocab_size": None}, "there is no vocab_size"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it must be true or"),
        ({"word_embed_proj_dim": "512"}, "word_embed_proj_dim is '512'"),
        ({"num_key_value_heads": 5}, "num_key_value_heads is 5; it must divide the 12"),
        ({"num_experts_per_tok": 3}, "num_experts_per_tok is 3; the model has 1 experts"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_name_and_value(change, said):
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        read_config(MODELS["gpt2"][1] | change, name="gpt2")


def test_values_that_are_null_are_those_of_the_family():
    parameters, config = MODELS["gpt2"]
    nothing = {"tie_word_embeddings": None, "n_inner": None, "word_embed_proj_dim": None}
    assert read_config(config | nothing, name="gpt2").parameters == parameters
    assert read_config(MODELS["roberta-base"][1], name="roberta").sequence == 512


def test_biases_of_a_llama_count_if_its_file_has_them():
    parameters, config = MODELS["llama-2-7b"]
    more = read_config(config | {"attention_bias": True, "mlp_bias": True}, name="llama")
    assert more.parameters - parameters == 32 * (4 * 4096 + 2 * 11008 + 4096)


def test_a_sample_has_4096_tokens_unless_it_is_said():
    config = MODELS["llama-3-8b"][1] | {"max_position_embeddings": 131072}
    assert read_config(config, name="llama").sequence == 4096
    assert read_config(config, name="llama", sequence=131072).sequence == 131072


def test_learned_positions_bound_the_sequence():
    config = MODELS["gpt2"][1]
    assert read_config(config, name="gpt2", sequence=512).parameters == 124_439_808
    with pytest.raises(InputError, match="a sample has 2048 tokens; the model takes 1 to 1024"):
        read_config(config, name="gpt2", sequence=2048)
    longer = read_config(MODELS["llama-2-7b"][1], name="llama", sequence=32768)
    assert longer.sequence == 32768
