"""PyTorch under a lease: the state of a training loop, saved whole and read back to the last bit.

    state = TrainingState(model=model, optimizer=optimizer)
    steps = LeaseIterator(batches, total_steps=10_000, save=state.save, load=state.load)
    for batch in steps:
        train(batch)

PyTorch is imported when something is saved or loaded, so this module can be imported without it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from leasehold.batches import RankBatch

#: The file in a checkpoint's folder.
STATE_FILE = "state.pt"


class Stateful(Protocol):
    """What can be saved: modules, optimizers, schedulers, scalers, samplers."""

    def state_dict(self) -> Any:
        """Return the state."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Take the state in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Everything that a training step changes.

    The generators of random numbers (Python, NumPy if it is loaded, PyTorch, every CUDA device)
    belong to it: without them dropout would go on differently after a preemption.

    Attributes:
        model: the module; of a distributed one, give what it wraps: ``model.module``.
        optimizer: the optimizer, or None.
        more: further objects by name, such as a scheduler of learning rates.
        device: where tensors are loaded to first; ``cpu`` spares the accelerator a second copy.
    """

    model: Stateful
    optimizer: Stateful | None = None
    more: Mapping[str, Stateful] = field(default_factory=dict)
    device: str = "cpu"

    def save(self, folder: Path) -> None:
        """Write the state into a checkpoint's folder; see ``LeaseIterator``."""
        save_atomically(
            {
                "objects": {name: item.state_dict() for name, item in self._objects().items()},
                "random": random_state(),
            },
            folder / STATE_FILE,
        )

    def load(self, folder: Path) -> None:
        """Read it back.

        Raises:
            KeyError: the checkpoint lacks the state of an object; names it.
        """
        state = _torch().load(folder / STATE_FILE, map_location=self.device, weights_only=True)
        for name, item in self._objects().items():
            if name not in state["objects"]:
                raise KeyError(
                    f"the checkpoint {folder} holds no state of '{name}', only of "
                    f"{', '.join(state['objects'])}; name the objects as when it was written"
                )
            item.load_state_dict(state["objects"][name])
        restore_random_state(state["random"])

    def _objects(self) -> dict[str, Stateful]:
        first = {"model": self.model}
        if self.optimizer is not None:
            first["optimizer"] = self.optimizer
        return first | dict(self.more)


def backward(module: Any, batch: RankBatch, loss_of: Callable[[tuple[int, ...]], Any]) -> float:
    """Compute the gradients of a step, pass by pass; a step of the optimiser comes after it.

    With ``DistributedDataParallel`` gradients are exchanged in the last pass only.

    Args:
        module: whose gradients are added to; those of the step before are to be zero.
        batch: of this process, see ``GlobalBatches``.
        loss_of: returns the mean loss over samples, given by their numbers.

    Returns:
        What this process adds to the loss: its mean over the processes is that of the whole batch.
    """
    loss = 0.0
    for number, part in enumerate(batch.passes, start=1):
        alone = number < len(batch.passes) and hasattr(module, "no_sync")
        with module.no_sync() if alone else contextlib.nullcontext():
            weighted = part.weight * loss_of(part.samples)
            weighted.backward()
        loss += float(weighted.detach())
    return loss


def save_atomically(state: Any, path: Path) -> None:
    """Write a state with ``torch.save`` so that the file is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        _torch().save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def random_state() -> dict[str, Any]:
    """Return the state of every generator of random numbers, in types that load safely."""
    torch = _torch()
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [name, [int(k) for k in keys], position, has_gauss, cached]
    return state


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Set every generator as it was; those of CUDA only where there are as many devices."""
    torch = _torch()
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
    if "numpy" in state and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_state(tuple(state["numpy"]))


def _torch() -> Any:
    return importlib.import_module("torch")
