"""Transformers by their shape: parameters and FLOPs.

Letters: h hidden size, s sequence length, V vocabulary, f size of the feed-forward part.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A stack of equal layers between an embedding and a head.

    Attributes:
        name: for people.
        layers: number of layers.
        hidden: h.
        heads: attention heads.
        key_value_heads: heads of keys and values; fewer than ``heads`` if they share them.
        head_size: size of a head, h / heads for most models.
        feed_forward: f.
        is_gated: whether the feed-forward part has a third matrix, as in SwiGLU.
        experts: feed-forward parts per layer; 1 unless it is a mixture of experts.
        active_experts: of them, those that a token passes.
        vocabulary: V.
        sequence: s, tokens of a sample.
        layer_extras: parameters of a layer beside its matrices: biases and norms.
        embedding_extras: parameters of the embedding beside the tokens': positions, norms.
        head_extras: parameters of the head beside its matrix: the last norm, a bias.
        is_tied: whether the head's matrix is that of the embedding.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_size: int
    feed_forward: int
    is_gated: bool = False
    experts: int = 1
    active_experts: int = 1
    vocabulary: int
    sequence: int
    layer_extras: int = 0
    embedding_extras: int = 0
    head_extras: int = 0
    is_tied: bool = True

    @property
    def attention_parameters(self) -> int:
        """Parameters of the four matrices of a layer's attention."""
        queries = self.heads * self.head_size
        shared = self.key_value_heads * self.head_size
        return self.hidden * (2 * queries + 2 * shared)

    @property
    def expert_parameters(self) -> int:
        """Parameters of the matrices of one feed-forward part."""
        return (3 if self.is_gated else 2) * self.hidden * self.feed_forward

    @property
    def router_parameters(self) -> int:
        """Parameters of the matrix that chooses experts; 0 without any choice."""
        return self.hidden * self.experts if self.experts > 1 else 0

    @property
    def layer_parameters(self) -> int:
        """Parameters of a layer."""
        return (
            self.attention_parameters
            + self.experts * self.expert_parameters
            + self.router_parameters
            + self.layer_extras
        )

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding."""
        return self.vocabulary * self.hidden + self.embedding_extras

    @property
    def head_parameters(self) -> int:
        """Parameters of the head, without those that it shares with the embedding."""
        own = 0 if self.is_tied else self.vocabulary * self.hidden
        return own + self.head_extras

    @property
    def last_parameters(self) -> int:
        """Parameters of the head on a worker that has no embedding."""
        return self.vocabulary * self.hidden + self.head_extras

    @property
    def kept_whole(self) -> float:
        """Bytes per token that each worker of a tensor group keeps of a layer, in half precision.

        Inputs of two norms, of attention and of the feed-forward part, and two masks of dropout:
        10 h (Korthikanti et al., MLSys'23, section 4.1).
        """
        return 10.0 * self.hidden

    @property
    def kept_split(self) -> float:
        """Bytes per token that a tensor group shares: queries, keys, values, feed-forward.

        24 h for GPT-3 (the same section): queries and the output of attention, keys and values, and
        two values per column of the feed-forward part, or four if it is gated.
        """
        attention = 4 * (self.heads + self.key_value_heads) * self.head_size
        columns = (8 if self.is_gated else 4) * self.active_experts * self.feed_forward
        return float(attention + columns)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return (
            self.embedding_parameters + self.layers * self.layer_parameters + self.head_parameters
        )

    @property
    def layer_flops(self) -> float:
        """FLOPs of the forward pass of one sample through a layer.

        Two per parameter of a matrix and token, and 4 s^2 per column of the heads for the products
        of queries with keys and of weights with values (Narayanan et al., SC'21, section 4.1
        and appendix).
        """
        active = (
            self.attention_parameters
            + self.active_experts * self.expert_parameters
            + self.router_parameters
        )
        products = 4 * self.sequence**2 * self.heads * self.head_size
        return float(2 * self.sequence * active + products)

    @property
    def head_flops(self) -> float:
        """FLOPs of the forward pass of one sample through the head."""
        return float(2 * self.sequence * self.hidden * self.vocabulary)


def gpt(*, layers: int, hidden: int, heads: int, vocabulary: int, sequence: int) -> Transformer:
    """Return a transformer of the shape of GPT-2 and GPT-3, with learned positions.

    Its parameters are 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), the formula of Narayanan et
    al., SC'21, equation 2; that leaves the last norm out.
    """
    return Transformer(
        name=f"gpt-{layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        key_value_heads=heads,
        head_size=hidden // heads,
        feed_forward=4 * hidden,
        vocabulary=vocabulary,
        sequence=sequence,
        layer_extras=13 * hidden,
        embedding_extras=sequence * hidden,
    )
