"""PyTorch under a lease: save the whole state of a training loop and restore it bit by bit.

    state = TrainingState(model=model, optimizer=optimizer)
    steps = LeaseIterator(batches, total_steps=10_000, save=state.save, load=state.load)
    for batch in steps:
        train(batch)

``AdaptiveTraining`` computes the steps of a job with adaptive batches.

PyTorch is imported when it is first needed, so this module can be imported without it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.adaptive import StepMeasurement
from leasehold.gradient_noise import GradientNorms, learning_rate_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from leasehold.adaptive import AdaptiveBatches, Figures
    from leasehold.batches import RankBatch
    from leasehold.gradient_noise import Rule, RuleName

#: The file in a checkpoint's folder.
STATE_FILE = "state.pt"


class Stateful(Protocol):
    """Objects with a state: modules, optimizers, schedulers, scalers, samplers."""

    def state_dict(self) -> Any:
        """Return the state."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Restore the state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Everything that a training step changes.

    It includes the random number generators (Python, NumPy if it is loaded, PyTorch, every CUDA
    device): without them dropout would differ after a preemption.

    Attributes:
        model: the module; for a distributed one, pass the wrapped module: ``model.module``.
        optimizer: the optimizer, or None.
        more: further objects by name, such as a scheduler of learning rates.
        device: first device of loaded tensors; ``cpu`` spares the accelerator a second copy.
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
            KeyError: the checkpoint lacks the state of an object; the message names it.
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
        module: its gradients are added to; set those of the previous step to zero first.
        batch: of this process, see ``GlobalBatches``.
        loss_of: returns the mean loss over samples, given by their numbers.

    Returns:
        This process's part of the loss: its mean over the processes is the loss of the whole batch.
    """
    loss = 0.0
    for number, part in enumerate(batch.passes, start=1):
        alone = number < len(batch.passes) and hasattr(module, "no_sync")
        with module.no_sync() if alone else contextlib.nullcontext():
            weighted = part.weight * loss_of(part.samples)
            weighted.backward()
        loss += float(weighted.detach())
    return loss


class AdaptiveTraining:
    """Computes the steps of a job with adaptive batches, and measures the worth of a batch.

    ``backward`` computes the gradient of each pass separately, so that their norms show the noise,
    and exchanges their sum at the end of the last pass. ``DistributedDataParallel`` does that as
    usual, while the pass still runs: its communication hook takes the norms of the last pass and
    adds the earlier ones. So the module can have no other hook. The earlier passes need memory for
    one more set of gradients. A single process without accumulation needs it too: it compares the
    gradients of two steps in a row, between which the model has changed a little.

    Norms are those of the plain gradients, even if the optimizer scales them, as Adam does.
    Gradients must not be scaled (``GradScaler``); clip them between ``backward`` and ``step``.

    Example:
        ::

            training = AdaptiveTraining(module=shared, optimizer=optimizer, batches=batches)
            state = TrainingState(model=model, optimizer=optimizer, more={"adaptive": training})
            for batch in LeaseIterator(batches, total_steps=1000, save=state.save, load=state.load):
                loss = training.backward(batch, loss_of)
                training.step()

    Args:
        module: used by ``loss_of``; with several processes a ``DistributedDataParallel``.
        optimizer: of its parameters.
        batches: the data of the ``LeaseIterator``.
        learning_rate: factor of the learning rate in a step: ``adascale`` is the gain of the step,
            ``linear`` m / m0, ``sqrt`` its root, ``fixed`` 1; or a function of m / m0 and the gain.
        clock: seconds, from any beginning.

    Raises:
        ValueError: there is no such rule, or the module does not exchange gradients.
    """

    def __init__(
        self,
        *,
        module: Any,
        optimizer: Any,
        batches: AdaptiveBatches,
        learning_rate: RuleName | Rule = "adascale",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._module, self._optimizer, self._batches = module, optimizer, batches
        self._rule = learning_rate_rule(learning_rate)
        self._clock = clock
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._shared = isinstance(module, _torch().nn.parallel.DistributedDataParallel)
        processes = module.process_group.size() if self._shared else 1
        if processes != batches.world_size:
            raise ValueError(
                f"the batches are shared by {batches.world_size} processes, and the module "
                f"exchanges gradients among {processes}; wrap it in DistributedDataParallel over "
                "all of them"
            )
        self._earlier: dict[Any, Any] = {}  # by parameter: the sum of the passes before the last
        self._norms: list[Any] = []  # of the last pass, a tensor each
        self._computed_s: float | None = None
        self._previous: _Previous | None = None
        if self._shared:  # untyped: PyTorch looks at annotations, and at the argument's name
            module.register_comm_hook(None, lambda _, bucket: self._exchange(bucket))

    @property
    def figures(self) -> Figures:
        """The measurements, see ``AdaptiveBatches.figures``."""
        return self._batches.figures

    def backward(self, batch: RankBatch, loss_of: Callable[[tuple[int, ...]], Any]) -> float:
        """Compute the gradients of a step, starting from zero; call ``step`` after it.

        Args:
            batch: of this process.
            loss_of: returns the mean loss over samples, given by their numbers.

        Returns:
            This process's part of the loss: its mean over the processes is the loss of the batch.
        """
        self._optimizer.zero_grad(set_to_none=True)
        loss, squares, seconds, last_pass_s = 0.0, [], [], 0.0
        for number, part in enumerate(batch.passes, start=1):
            is_last = number == len(batch.passes)
            self._norms, self._computed_s = [], None
            begun_s = self._clock()
            with (
                self._module.no_sync() if self._shared and not is_last else contextlib.nullcontext()
            ):
                weighted = part.weight * loss_of(part.samples)
                weighted.backward()
            loss += float(weighted.detach())  # waits for the accelerator
            ended_s = self._clock()
            computed_s = ended_s if self._computed_s is None else self._computed_s
            seconds.append(computed_s - begun_s)
            last_pass_s = ended_s - begun_s
            self._end_pass(is_last=is_last)
            squares.append(_squared(self._norms) / part.weight**2)
        self._record(batch, squares, sum(seconds) / len(seconds), last_pass_s)
        return loss

    def step(self) -> None:
        """Step the optimizer at the learning rate of this step; then restore the rates."""
        batches = self._batches
        factor = self._rule(batches.size / batches.limits.initial, batches.gain)
        groups = self._optimizer.param_groups
        rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * factor
        try:
            self._optimizer.step()
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with that of the batches; the same in each process."""
        previous = self._previous
        return {
            "batches": self._batches.state_dict(),
            "previous": None
            if previous is None
            else {"size": previous.size, "sqr": previous.sqr, "gradients": previous.gradients},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, also on another number of processes."""
        self._batches.load_state_dict(state["batches"])
        previous = state["previous"]
        if previous is not None:
            devices = [p.device for p in self._parameters]
            moved = zip(previous["gradients"], devices, strict=True)
            previous = _Previous(
                size=previous["size"],
                sqr=previous["sqr"],
                gradients=[g.to(device) for g, device in moved],
            )
        self._previous = previous

    def _exchange(self, bucket: Any) -> Any:
        """Begin to average a bucket of gradients over the processes, with the earlier passes."""
        torch, buffer = _torch(), bucket.buffer()
        if bucket.is_last():
            if buffer.is_cuda:  # the computing stream, not the exchanging one
                torch.cuda.current_stream(buffer.device).synchronize()
            self._computed_s = self._clock()
        self._norms.append(vector_norm(buffer))
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if (earlier := self._earlier.pop(parameter, None)) is not None:
                gradient.add_(earlier)
        group = self._module.process_group
        buffer.mul_(1.0 / group.size())
        work = torch.distributed.all_reduce(buffer, group=group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def _end_pass(self, *, is_last: bool) -> None:
        """Compute the norms of a pass, and store its gradients or add the earlier ones."""
        if is_last and self._shared:
            return
        self._norms = [vector_norm(p.grad) for p in self._parameters if p.grad is not None]
        for parameter in self._parameters:
            earlier, gradient = self._earlier.pop(parameter, None), parameter.grad
            if earlier is not None:
                gradient = earlier if gradient is None else gradient.add_(earlier)
            parameter.grad = gradient if is_last else None
            if not is_last and gradient is not None:
                self._earlier[parameter] = gradient

    def _record(
        self, batch: RankBatch, squares: list[float], pass_s: float, last_pass_s: float
    ) -> None:
        """Sum the measurements of the processes, and record the sum in the batches.

        All decisions follow from one sum, which is the same in all processes; values that only rank
        0 decides are 0 in the others.
        """
        batches = self._batches
        leads = batches.rank == 0
        inverse = sum(1.0 / len(part.samples) for part in batch.passes)
        large_sqr = _squared(vector_norm(p.grad) for p in self._parameters if p.grad is not None)
        of_rank_0 = (large_sqr, float(batches.propose())) if leads else (0.0, 0.0)
        added = self._sum(
            [sum(squares), inverse, float(len(squares)), pass_s, last_pass_s, *of_rank_0]
        )
        small_sqr, inverse, count, pass_s, last_pass_s, large_sqr, next_size = added
        if count > 1:
            norms: GradientNorms | None = GradientNorms(
                small_sqr=small_sqr / count,
                large_sqr=large_sqr,
                small=count / inverse,
                large=batches.size,
            )
            self._previous = None
        else:
            norms = self._compare(large_sqr)
        batches.record(
            StepMeasurement(
                pass_s=pass_s / batches.world_size,
                last_pass_s=last_pass_s / batches.world_size,
                norms=norms,
                next_size=int(next_size),
            )
        )

    def _sum(self, values: list[float]) -> list[float]:
        if not self._shared:
            return values
        torch = _torch()
        added = torch.tensor(values, dtype=torch.float64, device=self._parameters[0].device)
        torch.distributed.all_reduce(added, group=self._module.process_group)
        return [float(value) for value in added.tolist()]

    def _compare(self, sqr: float) -> GradientNorms | None:
        """Compare a step's only gradient with that of the previous step, of as many samples."""
        torch, size, before = _torch(), self._batches.size, self._previous
        gradients = [
            torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self._parameters
        ]
        self._previous = _Previous(size=size, sqr=sqr, gradients=gradients)
        if before is None or before.size != size:
            return None
        pairs = zip(before.gradients, gradients, strict=True)
        both_sqr = _squared(vector_norm((old + new) / 2) for old, new in pairs)
        return GradientNorms(
            small_sqr=(before.sqr + sqr) / 2, large_sqr=both_sqr, small=size, large=2 * size
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Previous:
    """The gradient of the previous step: samples, squared norm, and the tensors."""

    size: int
    sqr: float
    gradients: list[Any]


def vector_norm(tensor: Any) -> Any:
    """Return the norm in single precision at least: small differences of norms count."""
    torch = _torch()
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(tensor.detach(), dtype=torch.float32 if half else None)


def _squared(norms: Iterable[Any]) -> float:
    """Return the squared norm of tensors together, given the norm of each."""
    found = list(norms)
    return sum(float(n) ** 2 for n in _torch().stack(found).tolist()) if found else 0.0


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
    """Restore every generator; those of CUDA only if the number of devices is the same."""
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
