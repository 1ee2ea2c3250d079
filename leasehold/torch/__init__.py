"""PyTorch: the state of a training loop, adaptive batches, and models under a plan.

PyTorch is imported when it is first needed, so this package can be imported without it.
"""

from __future__ import annotations

from leasehold.torch.layers import describe_layers
from leasehold.torch.planned import PlannedModel, PlannedState, apply
from leasehold.torch.training import (
    STATE_FILE,
    AdaptiveTraining,
    Stateful,
    TrainingState,
    backward,
    random_state,
    restore_random_state,
    save_atomically,
)

__all__ = [
    "STATE_FILE",
    "AdaptiveTraining",
    "PlannedModel",
    "PlannedState",
    "Stateful",
    "TrainingState",
    "apply",
    "backward",
    "describe_layers",
    "random_state",
    "restore_random_state",
    "save_atomically",
]
