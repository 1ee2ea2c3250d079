"""A model and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.plans.layers import LayeredModel
    from planner.plans.transformer import Transformer

#: Precisions whose products read numbers of four bytes; all others keep two bytes.
_FULL: Final = frozenset({"fp32", "tf32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of training.

    Attributes:
        batch: samples of a step, of all copies of the model together.
        precision: of the products of matrices.
    """

    batch: int
    precision: str = "fp16"

    @property
    def number_bytes(self) -> int:
        """Bytes of a weight, of a gradient and of an activation."""
        return 4 if self.precision in _FULL else 2

    @property
    def optimiser_bytes(self) -> int:
        """Bytes that Adam keeps of a parameter.

        Two moments in full precision, and a weight in full precision beside one in half precision
        (Rajbhandari et al., SC'20, section 3.1).
        """
        return 8 if self.precision in _FULL else 12

    @property
    def updated_bytes(self) -> int:
        """Bytes that an update of a parameter reads and writes; gradients are read."""
        return 3 * self.number_bytes + 2 * self.optimiser_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Step):
    """A transformer and its step.

    Attributes:
        model: the model.
        is_fused: whether a fused kernel computes attention, which keeps and moves no scores.
    """

    model: Transformer
    is_fused: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredTraining(Step):
    """A model as a list of layers, and its step.

    Attributes:
        model: the model.
    """

    model: LayeredModel
