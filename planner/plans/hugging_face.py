"""The shape of a transformer from the ``config.json`` of a model for Hugging Face Transformers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from planner.plans.transformer import Transformer
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Our name -> the names that families of models give to it, of which the first one counts.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "key_value_heads": ("num_key_value_heads",),
    "head_size": ("head_dim",),
    "feed_forward": ("intermediate_size", "ffn_dim", "n_inner"),
    "vocabulary": ("vocab_size",),
    "sequence": ("max_position_embeddings", "n_positions", "seq_length"),
    "segments": ("type_vocab_size",),
    "embedding": ("word_embed_proj_dim",),
    "experts": ("num_local_experts",),
    "active_experts": ("num_experts_per_tok",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """How a family of models differs from one whose matrices have no biases.

    Attributes:
        query_bias: whether queries, keys and values have biases.
        output_bias: whether the attention's output has one.
        feed_forward_bias: whether the matrices of the feed-forward part have biases.
        norms: normalisations of a layer.
        norm_bias: whether they have a bias beside their weight.
        is_gated: see ``Transformer``.
        positions: whether positions are learned.
        spare_positions: positions of the table that no token can have.
        counts_spare: whether the file's longest sequence includes these.
        segments: kinds of segments with an embedding, unless the file says how many.
        embedding_norm: whether the embedding is normalised.
        final_norm: whether the last layer's output is.
        head_bias: whether the head has a bias.
        pooler: whether a square matrix with a bias stands above the first token.
        is_tied: whether the head's matrix is that of the embedding, unless the file says so.
    """

    query_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    norms: int = 2
    norm_bias: bool = False
    is_gated: bool = False
    positions: bool = False
    spare_positions: int = 0
    counts_spare: bool = False
    segments: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    head_bias: bool = False
    pooler: bool = False
    is_tied: bool = True


_BIASED: Final = {
    "query_bias": True,
    "output_bias": True,
    "feed_forward_bias": True,
    "norm_bias": True,
}
_BERT: Final = _Family(
    **_BIASED, positions=True, segments=2, embedding_norm=True, final_norm=False, pooler=True
)
_LLAMA: Final = _Family(is_gated=True, is_tied=False)
#: Tokens of a sample unless a caller says how many: training on the longest sequence is rare.
USUAL_SEQUENCE: Final = 4096
#: ``model_type`` -> its family.
_FAMILIES: Final[Mapping[str, _Family]] = {
    "bert": _BERT,
    "roberta": replace(_BERT, spare_positions=2, counts_spare=True, segments=1),
    "gpt2": _Family(**_BIASED, positions=True),
    "gpt_neo": _Family(output_bias=True, feed_forward_bias=True, norm_bias=True, positions=True),
    "gptj": _Family(feed_forward_bias=True, norms=1, norm_bias=True, head_bias=True, is_tied=False),
    "gpt_neox": _Family(**_BIASED, is_tied=False),
    "opt": _Family(**_BIASED, positions=True, spare_positions=2),
    "bloom": _Family(**_BIASED, embedding_norm=True),
    "phi": _Family(**_BIASED, norms=1, head_bias=True, is_tied=False),
    "gemma": _Family(is_gated=True),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "qwen2": _Family(query_bias=True, is_gated=True, is_tied=False),
}


def read_config(
    config: Mapping[str, Any], *, name: str, sequence: int | None = None
) -> Transformer:
    """Return the transformer of a ``config.json``.

    Args:
        config: the file's object.
        name: of the model, for people.
        sequence: tokens of a sample; by default the longest that the model takes, and at most
            ``USUAL_SEQUENCE``.

    Raises:
        InputError: the family of the model is unknown, or a value is missing or cannot be used.
    """
    kind = config.get("model_type")
    family = _FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        known = ", ".join(sorted(_FAMILIES))
        raise InputError(f"model_type is {kind!r}; the known ones are {known}")
    hidden, heads = _count(config, "hidden"), _count(config, "heads")
    if hidden % heads and not _has(config, "head_size"):
        raise InputError(f"hidden size {hidden} is not a multiple of its {heads} attention heads")
    key_value_heads = _count(config, "key_value_heads", heads)
    if heads % key_value_heads:
        raise InputError(
            f"num_key_value_heads is {key_value_heads}; it must divide the {heads} attention heads"
        )
    head_size = _count(config, "head_size", hidden // heads)
    feed_forward = _count(config, "feed_forward", 4 * hidden)
    table = _count(config, "sequence", sequence)
    longest = max(table - family.spare_positions * family.counts_spare, 1)
    table += family.spare_positions * (not family.counts_spare)
    if sequence is not None and family.positions and not 1 <= sequence <= longest:
        raise InputError(f"a sample has {sequence} tokens; the model takes 1 to {longest}")
    vocabulary = _count(config, "vocabulary")
    experts = _count(config, "experts", 1)
    active = _count(config, "active_experts", min(experts, 2))
    if active > experts:
        raise InputError(f"num_experts_per_tok is {active}; the model has {experts} experts")
    queries, shared_rows = heads * head_size, key_value_heads * head_size
    norm = hidden * (2 if family.norm_bias else 1)
    own_size = _count(config, "embedding", hidden)  # OPT-350M has a narrower embedding
    attention_bias = _flag(config, "attention_bias", default=False)
    feed_forward_bias = _flag(config, "mlp_bias", default=family.feed_forward_bias)
    columns = feed_forward * (2 if family.is_gated else 1)
    return Transformer(
        name=name,
        layers=_count(config, "layers"),
        hidden=hidden,
        heads=heads,
        key_value_heads=key_value_heads,
        head_size=head_size,
        feed_forward=feed_forward,
        is_gated=family.is_gated,
        experts=experts,
        active_experts=active,
        vocabulary=vocabulary,
        sequence=sequence or min(longest, USUAL_SEQUENCE),
        layer_extras=(
            (family.query_bias or attention_bias) * (queries + 2 * shared_rows)
            + (family.output_bias or attention_bias) * hidden
            + feed_forward_bias * experts * (columns + hidden)
            + family.norms * norm
        ),
        embedding_extras=(
            family.positions * table * hidden
            + (_count(config, "segments", family.segments) if family.segments else 0) * hidden
            + family.embedding_norm * norm
            + _narrowing(own_size, hidden, vocabulary)
        ),
        head_extras=(
            (family.final_norm and own_size == hidden) * norm
            + family.head_bias * vocabulary
            + family.pooler * (hidden * hidden + hidden)
        ),
        is_tied=_flag(config, "tie_word_embeddings", default=family.is_tied),
    )


def _narrowing(own_size: int, hidden: int, vocabulary: int) -> int:
    """Return the parameters of a narrower embedding less those of a full one."""
    if own_size == hidden:
        return 0
    return vocabulary * (own_size - hidden) + 2 * own_size * hidden


def _has(config: Mapping[str, Any], name: str) -> bool:
    return any(config.get(key) is not None for key in _NAMES[name])


def _count(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return a positive whole number.

    Raises:
        InputError: it is missing, or not such a number.
    """
    for key in _NAMES[name]:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**40:
            raise InputError(f"{key} is {value!r}; it must be a positive whole number")
        return value
    if default is None:
        raise InputError(f"there is no {_NAMES[name][0]}; add it to the model's config.json")
    return default


def _flag(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return a truth value.

    Raises:
        InputError: it is another value.
    """
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(f"{key} is {value!r}; it must be true or false")
    return value
