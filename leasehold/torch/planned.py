"""Carry out a plan: split a module over the processes of a job with PyTorch's own parts.

    plan = Plan.current()
    planned = apply(model, plan, loss=cross_entropy, tensor={"*.query": "columns", ...})
    optimizer = torch.optim.AdamW(planned.parameters(), lr=1e-4)
    batches = GlobalBatches(total=len(data), size=64, **planned.shares)
    state = PlannedState(planned=planned, optimizer=optimizer)
    for batch in LeaseIterator(batches, **state.hooks):
        loss = planned.backward(batch, load)
        optimizer.step()

The parts are ``DeviceMesh``, ``parallelize_module``, ``torch.distributed.pipelining``,
``fully_shard``, ``checkpoint`` and ``torch.distributed.checkpoint``.

PyTorch is imported when it is first needed, so this module can be imported without it.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import hashlib
import importlib
import inspect
import itertools
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leasehold.torch.layers import find_layers, is_plain
from leasehold.torch.training import save_atomically, vector_norm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from leasehold.batches import RankBatch
    from leasehold.plan import Plan
    from leasehold.torch.training import Stateful

    #: Returns inputs and targets of samples.
    _Loads = Callable[[tuple[int, ...]], tuple[tuple[Any, ...], Any]]

#: Beside the shards in a checkpoint's folder: state that all processes share.
COMMON_FILE: Final = "common.pt"
#: How a matrix is shared: each worker has some of its columns (outputs) or rows (inputs).
_SHARES: Final = ("columns", "rows")
#: Precisions in which the passes may compute.
_PRECISIONS: Final = ("fp32", "bf16")


def apply(
    model: Any,
    plan: Plan,
    *,
    loss: Callable[[Any, Any], Any],
    tensor: Mapping[str, str] | None = None,
    precision: str = "fp32",
) -> PlannedModel:
    """Split a module over the processes of a job; every process calls it with the same module.

    Neighbouring ranks share matrices, then come the copies, then the stages. The module is changed,
    and keeps its layers of this process alone. Layers are the elements of ``Sequential`` and
    ``ModuleList``, as for ``leasehold plan``.

    Args:
        model: with the same weights in every process; on the CPU, unless it fits a worker. A
            pipeline needs a ``Sequential``. If its plan has no ``stages``, equal layers in a row
            are spread evenly, and other layers go to the ends.
        plan: for as many workers as there are processes.
        loss: returns the loss from the module's output and the targets, a mean over samples that
            count the same.
        tensor: patterns of names of linear layers and embeddings -> ``columns`` or ``rows``. Needed
            if workers share matrices. Columns are followed by rows, with nothing between them that
            has parameters; the last layer may be in columns. Attention must not count its heads
            itself: a worker has some of them.
        precision: of the passes; weights and optimiser keep the module's own. fp32 leaves the
            module as it is.

    Raises:
        ValueError: the module and the plan do not fit; the message names what does not.
    """
    torch = importlib.import_module("torch")
    if precision not in _PRECISIONS:
        raise ValueError(f"'precision' is {precision!r}; it may be {' or '.join(_PRECISIONS)}")
    layers = find_layers(torch, model)
    shares = _check(torch, model, layers, plan, tensor or {})
    device = _join(torch)
    dist = torch.distributed
    if plan.workers != dist.get_world_size():
        raise ValueError(
            f"the plan is for {plan.workers} workers, and there are {dist.get_world_size()} "
            "processes"
        )
    _check_equal(torch, model, device)
    copies, shards = (plan.data, 1) if plan.zero == 0 else (1, plan.data)
    mesh = dist.device_mesh.init_device_mesh(
        device.type,
        (plan.pipeline, copies, shards, plan.tensor),
        mesh_dim_names=("pipeline", "copies", "shards", "tensor"),
    )
    chunks = _chunks_of(layers, plan, mesh.get_local_rank("pipeline"))
    last, tied = layers[-1][1], _tied(layers)
    if plan.pipeline > 1:
        held = set(itertools.chain.from_iterable(chunks))
        _remove(model, {name for i, (name, _) in enumerate(layers) if i not in held})
    parts = []
    for chunk in chunks:
        kept = [layers[i][1] for i in chunk]
        for one in kept:
            if plan.recompute and one is not last:
                _recompute(one)
            _share(one, mesh["tensor"], shares)
            if one not in tied and one is not model:
                _shard(torch, one, plan=plan, mesh=mesh, precision=precision)
        part = model if plan.pipeline == 1 else torch.nn.Sequential(*kept)
        _share(part, mesh["tensor"], shares)
        returns = plan.pipeline == 1 or last in kept
        _shard(torch, part, plan=plan, mesh=mesh, precision=precision, returns=returns)
        parts.append(part if plan.offload else part.to(device))
    # Workers that share matrices compute the same activations, and need the same random numbers.
    seed = torch.tensor(_seed(torch), device=device)
    dist.broadcast(seed, src=0)
    torch.manual_seed(int(seed) + dist.get_rank() // plan.tensor)
    return PlannedModel(plan=plan, module=model, parts=parts, mesh=mesh, device=device, loss=loss)


class PlannedModel:
    """The part of a module that this process has, see ``apply``.

    Attributes:
        plan: the plan.
        module: the module with the layers of this process; names of parameters are those of the
            whole module.
        host_group: all processes, for tensors on the host.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        module: Any,
        parts: list[Any],
        mesh: Any,
        device: Any,
        loss: Callable[[Any, Any], Any],
    ) -> None:
        """Hold the parts of a module; use ``apply``."""
        self.plan, self.module = plan, module
        self._parts, self._mesh, self._device, self._loss = parts, mesh, device, loss
        self._torch = importlib.import_module("torch")
        self._stage = mesh.get_local_rank("pipeline")
        self._schedule: tuple[int, Any] = (0, None)
        #: parameters that workers do not share, and whose gradients have not been compared.
        self._unchecked: list[str] = []  # in the same order in all processes
        if plan.tensor > 1:
            self._unchecked = [
                name
                for name, one in module.named_parameters()
                if "tensor" not in one.device_mesh.mesh_dim_names
            ]
        self.host_group = self._torch.distributed.new_group(backend="gloo")

    @property
    def shares(self) -> dict[str, Any]:
        """What ``GlobalBatches`` has to know: the copy of this process, copies and microbatch."""
        mesh, plan = self._mesh, self.plan
        rank = mesh.get_local_rank("copies") + mesh.get_local_rank("shards")
        return {"rank": rank, "world_size": plan.data, "most_per_pass": plan.microbatch}

    def parameters(self) -> Iterator[Any]:
        """Yield the parameters of this process, for an optimiser."""
        yield from self.module.parameters()

    def backward(
        self, batch: RankBatch, load: Callable[[tuple[int, ...]], tuple[Any, Any]]
    ) -> float:
        """Compute the gradients of a step; a step of the optimiser comes after it.

        Gradients of the step before are cleared. All processes call it.

        Args:
            batch: of this copy, see ``shares``.
            load: returns inputs and targets of samples, given by their numbers; the same in each
                process. Inputs are a tensor or a tuple of tensors, targets are a tensor; the first
                size of each is the number of samples. Numbers that it draws from PyTorch's
                generator depend on the step and the first sample alone.

        Returns:
            The loss of the whole batch, in every process.

        Raises:
            ValueError: the batch cannot be split as the plan needs, or workers that share matrices
                have different gradients of a parameter that they do not share.
        """
        for one in self.parameters():
            one.grad = None
        loss = self._pass(batch, load, is_training=True)
        self._check_gradients()
        return loss

    def evaluate(
        self, batch: RankBatch, load: Callable[[tuple[int, ...]], tuple[Any, Any]]
    ) -> float:
        """Return the loss of a batch in every process, without gradients; see ``backward``."""
        kept = [(one, one.grad) for one in self.parameters()]
        with self._torch.no_grad():
            loss = self._pass(batch, load, is_training=False)
        for one, gradient in kept:  # a pipeline clears them
            one.grad = gradient
        for part in self._parts:  # the optimiser may change the shards before the next pass
            for one in part.modules():
                if hasattr(one, "reshard"):
                    one.reshard()
        return loss

    def _pass(
        self,
        batch: RankBatch,
        load: Callable[[tuple[int, ...]], tuple[Any, Any]],
        *,
        is_training: bool,
    ) -> float:
        """Run a batch; return its loss in every process."""
        self._check_batch(batch)
        seeded = functools.partial(self._load, load, step=batch.step)
        run = self._run_pipeline if self.plan.pipeline > 1 else self._run
        total = run(batch, seeded, is_training=is_training)
        self._torch.distributed.all_reduce(total)
        return float(total) / (self.plan.data * self.plan.tensor)

    def _check_batch(self, batch: RankBatch) -> None:
        """Check that a batch can be split; all copies find the same.

        Raises:
            ValueError: it cannot.
        """
        plan = self.plan
        if plan.pipeline == 1 and plan.zero < 2:
            return
        weights = [one.weight for one in batch.passes]
        sizes = {len(one.samples) for one in batch.passes}
        is_even = math.isclose(sum(weights), 1.0) and sizes == {plan.microbatch}
        if not is_even:
            raise ValueError(
                f"a step does not split into microbatches of {plan.microbatch} samples for each of "
                f"{plan.data} copies; the size of the batch must be a multiple of "
                f"{plan.microbatch * plan.data}"
            )

    def _check_gradients(self) -> None:
        """Check that workers which share matrices agree on the gradients of all other parameters.

        Raises:
            ValueError: they do not; the message names the parameter.
        """
        if not self._unchecked:
            return
        torch, group = self._torch, self._mesh.get_group("tensor")
        dist, found = torch.distributed, dict(self.module.named_parameters())
        for name in self._unchecked.copy():
            gradient = found[name].grad
            if gradient is None:
                continue
            mine = gradient.to_local().to(self._device)
            first = mine.clone()
            dist.broadcast(first, src=dist.get_global_rank(group, 0), group=group)
            size, apart = vector_norm(first), vector_norm(mine - first)
            dist.all_reduce(apart, op=dist.ReduceOp.MAX, group=group)
            if float(apart) > 0.01 * float(size):
                raise ValueError(
                    f"{name!r} has different gradients on workers that share matrices: it lies "
                    "between columns and rows; name its layer in 'tensor', or compute it outside"
                )
            if float(size) > 0.0:  # layers that begin with zeros give no gradient at first
                self._unchecked.remove(name)

    def clip_gradients(self, most: float) -> float:
        """Scale the gradients down if their norm is above a bound. All processes call it.

        Args:
            most: the largest norm of all gradients together.

        Returns:
            The norm before.
        """
        torch, plan = self._torch, self.plan
        gradients = [one.grad for one in self.parameters() if one.grad is not None]
        square = torch.zeros((), device=self._device)
        for one in gradients:
            shards = math.prod(
                size
                for size, placement in zip(one.device_mesh.shape, one.placements, strict=True)
                if not placement.is_replicate()
            )
            norm = vector_norm(one.to_local())
            # So many processes of this stage have the same shard.
            square += (
                norm.to(self._device, torch.float32).square() * shards / (plan.data * plan.tensor)
            )
        torch.distributed.all_reduce(square)
        norm = float(square.sqrt())
        if norm > most:
            for one in gradients:
                one.to_local().mul_(most / norm)
        return norm

    def _run(self, batch: RankBatch, load: _Loads, *, is_training: bool) -> Any:
        """Run the passes of a step one after another; return the loss of this copy."""
        (part,) = self._parts
        total = self._torch.zeros((), device=self._device)
        for number, one in enumerate(batch.passes, start=1):
            is_last = number == len(batch.passes)
            part.set_requires_gradient_sync(is_last or self.plan.zero >= 2)
            part.set_reshard_after_backward(is_last or self.plan.zero == 3)
            inputs, targets = load(one.samples)
            weighted = one.weight * self._loss(part(*inputs), targets)
            if is_training:
                weighted.backward()
            total += weighted.detach()
        return total

    def _run_pipeline(self, batch: RankBatch, load: _Loads, *, is_training: bool) -> Any:
        """Run the microbatches of a step; return the loss of this copy, 0 before the last stage."""
        torch, count = self._torch, len(batch.passes)
        if self._schedule[0] != count:
            self._schedule = (count, self._make_schedule(count))
        is_first, is_last = self._stage == 0, self._stage == self.plan.pipeline - 1
        inputs: tuple[Any, ...] = ()
        told: dict[str, Any] = {}
        if is_first or is_last:
            inputs, targets = load(batch.samples)
            told = {"target": targets, "losses": []} if is_last else {}
        schedule = self._schedule[1]
        run = schedule.step if is_training else schedule.eval
        if "return_outputs" in inspect.signature(schedule.step).parameters:  # older ones keep them
            told["return_outputs"] = False
        run(*(inputs if is_first else ()), **told)
        total = torch.zeros((), device=self._device)
        losses = told.get("losses")
        return total + torch.stack(losses).mean().detach().to(total.dtype) if losses else total

    def _make_schedule(self, microbatches: int) -> Any:
        pipelining = importlib.import_module("torch.distributed.pipelining")
        plan, group = self.plan, self._mesh.get_group("pipeline")
        stages = [
            pipelining.PipelineStage(
                part,
                self._stage + i * plan.pipeline,
                plan.pipeline * plan.chunks,
                self._device,
                group=group,
            )
            for i, part in enumerate(self._parts)
        ]
        if plan.chunks > 1:
            return pipelining.ScheduleInterleaved1F1B(stages, microbatches, loss_fn=self._loss)
        # With fewer microbatches than stages both are the same, and PyTorch refuses 1F1B.
        is_short = microbatches < plan.pipeline
        schedule = pipelining.ScheduleGPipe if is_short else pipelining.Schedule1F1B
        return schedule(stages[0], microbatches, loss_fn=self._loss)

    def _load(
        self,
        load: Callable[[tuple[int, ...]], tuple[Any, Any]],
        samples: tuple[int, ...],
        *,
        step: int,
    ) -> tuple[tuple[Any, ...], Any]:
        """Return inputs and targets on the device; the same on all processes of a copy."""
        generator = self._torch.default_generator  # that of the host alone
        before = generator.get_state()
        generator.manual_seed((step * 2**31 + samples[0]) % 2**62)
        try:
            inputs, targets = load(samples)
        finally:
            generator.set_state(before)
        several = inputs if isinstance(inputs, tuple) else (inputs,)
        return tuple(one.to(self._device) for one in several), targets.to(self._device)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedState:
    """The state of a training loop under a plan; another plan may load it.

    It does not hold random number generators: each process begins with new ones after a load,
    which the checkpoint determines.

    Attributes:
        planned: the module.
        optimizer: of its parameters.
        more: further objects by name whose state is the same in every process, such as a scheduler
            of learning rates.
    """

    planned: PlannedModel
    optimizer: Stateful
    more: Mapping[str, Stateful] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the state into a checkpoint's folder, all processes together.

        Raises:
            RuntimeError: a process cannot write its part.
        """
        torch = importlib.import_module("torch")
        checkpoint = importlib.import_module("torch.distributed.checkpoint")
        with _plain_errors(checkpoint):
            checkpoint.save(
                self._sharded(), checkpoint_id=folder, process_group=self.planned.host_group
            )
        if torch.distributed.get_rank() == 0:
            common = {name: one.state_dict() for name, one in self.more.items()}
            save_atomically({"objects": common, "seed": _seed(torch)}, folder / COMMON_FILE)

    def load(self, folder: Path) -> None:
        """Read it back, all processes together, under any plan.

        Raises:
            KeyError: the checkpoint lacks the state of an object; the message names it.
            RuntimeError: a process cannot read its part.
        """
        torch = importlib.import_module("torch")
        state_dict = importlib.import_module("torch.distributed.checkpoint.state_dict")
        checkpoint = importlib.import_module("torch.distributed.checkpoint")
        sharded, group = self._sharded(), self.planned.host_group
        model = {"model": sharded["model"]}
        rest = {"optimizer": sharded["optimizer"]}
        # A parameter that was never used has no state of the optimiser.
        planner = checkpoint.DefaultLoadPlanner(allow_partial_load=True)
        with _plain_errors(checkpoint):
            checkpoint.load(model, checkpoint_id=folder, process_group=group)
            checkpoint.load(rest, checkpoint_id=folder, process_group=group, planner=planner)
        module, options = self.planned.module, self._options()
        state_dict.set_model_state_dict(module, model["model"], options=options)
        state_dict.set_optimizer_state_dict(
            module, self.optimizer, rest["optimizer"], options=options
        )
        common = torch.load(folder / COMMON_FILE, weights_only=True)
        for name, one in self.more.items():
            if name not in common["objects"]:
                raise KeyError(
                    f"the checkpoint {folder} holds no state of '{name}', only of "
                    f"{', '.join(common['objects']) or 'no object'}; name the objects as when it "
                    "was written"
                )
            one.load_state_dict(common["objects"][name])
        torch.manual_seed(common["seed"] + torch.distributed.get_rank() // self.planned.plan.tensor)

    @property
    def hooks(self) -> dict[str, Any]:
        """``save``, ``load`` and ``agree``, for ``LeaseIterator``."""
        return {"save": self.save, "load": self.load, "agree": self.agree}

    def agree(self, answer: bool) -> bool:
        """Return the answer of rank 0 in every process; see ``LeaseIterator``."""
        torch = importlib.import_module("torch")
        told = torch.tensor(int(answer))
        torch.distributed.broadcast(told, src=0, group=self.planned.host_group)
        return bool(told)

    def _sharded(self) -> dict[str, Any]:
        state_dict = importlib.import_module("torch.distributed.checkpoint.state_dict")
        module, options = self.planned.module, self._options()
        return {
            "model": state_dict.get_model_state_dict(module, options=options),
            "optimizer": state_dict.get_optimizer_state_dict(
                module, self.optimizer, options=options
            ),
        }

    @staticmethod
    def _options() -> Any:
        """Name the optimiser's state by parameters, since processes have different ones."""
        state_dict = importlib.import_module("torch.distributed.checkpoint.state_dict")
        return state_dict.StateDictOptions(flatten_optimizer_state_dict=True)


@contextlib.contextmanager
def _plain_errors(checkpoint: Any) -> Iterator[None]:
    """Make errors of distributed checkpoints plain ones, which callers can catch."""
    try:
        yield
    except checkpoint.CheckpointException as error:  # no Exception
        raise RuntimeError(str(error)) from error


def _seed(torch: Any) -> int:
    """Return a number that follows from the random numbers so far, and draw none."""
    digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).digest()
    return int.from_bytes(digest[:4], "big")


def _join(torch: Any) -> Any:
    """Return this process's device, after it has joined the others."""
    device = torch.device("cpu")
    if torch.cuda.is_available():  # an agent may show a process its own accelerator alone
        number = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
    dist = torch.distributed
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


def _check(
    torch: Any, model: Any, layers: list[tuple[str, Any]], plan: Plan, tensor: Mapping[str, str]
) -> dict[Any, Any]:
    """Check that a module can be split as a plan says; every process finds the same.

    Returns:
        Module that workers share -> how, as a style of ``torch.distributed.tensor.parallel``.

    Raises:
        ValueError: it cannot.
    """
    if not any(one.requires_grad for one in model.parameters()):
        raise ValueError(f"the {type(model).__name__} has no parameter to train")
    if any(one.is_meta for one in model.parameters()):
        raise ValueError("the module is on the device 'meta'; make it on the CPU, with its weights")
    if plan.recompute or plan.data > 1:
        _check_statistics(model)
    if plan.pipeline > 1:
        _check_stages(torch, model, layers, plan)
    if plan.tensor > 1 and not tensor:
        raise ValueError(
            f"{plan.tensor} workers share each matrix, and 'tensor' is missing; say which layers "
            "they share: tensor={'*.query': 'columns', '*.out': 'rows'}"
        )
    shared = _find_shared(model, tensor)
    if plan.tensor == 1:
        return {}
    owners = _owners(model.named_modules())
    for name, (module, share) in shared.items():
        _check_share(torch, name, module, share, plan.tensor)
        if len(owners[id(module.weight)]) > 1:
            raise ValueError(
                f"{' and '.join(owners[id(module.weight)])} have the same weight, and 'tensor' "
                "names one of them; give each its own, or leave them out of 'tensor'"
            )
    return {
        module: _style(torch, module, share, is_last=module is layers[-1][1])
        for module, share in shared.values()
    }


def _check_statistics(model: Any) -> None:
    """Refuse running statistics: copies would keep different ones, and recomputation counts twice.

    Raises:
        ValueError: a layer has some; the message names it.
    """
    for name, module in model.named_modules():
        if getattr(module, "track_running_stats", False):
            raise ValueError(
                f"{name!r} keeps running statistics, which the plan's copies or recomputation "
                "would change; use a norm without them, such as torch.nn.GroupNorm"
            )


def _check_stages(torch: Any, model: Any, layers: list[tuple[str, Any]], plan: Plan) -> None:
    """Check that a module can be cut into the stages of a plan.

    Raises:
        ValueError: it cannot.
    """
    if not (is_plain(torch, model) and isinstance(model, torch.nn.Sequential)):
        raise ValueError(
            f"the plan has {plan.pipeline} stages, and the module is a {type(model).__name__}; "
            "only a torch.nn.Sequential without a forward of its own can be cut into stages"
        )
    _check_places(model, layers)
    if _tied(layers):
        raise ValueError(
            "layers share a parameter, and the plan has several stages; give each layer its own"
        )
    for stage in range(plan.pipeline):
        held = itertools.chain.from_iterable(_chunks_of(layers, plan, stage))
        if not any(one.requires_grad for i in held for one in layers[i][1].parameters()):
            raise ValueError(f"stage {stage} of {plan.pipeline} would have no parameter to train")


def _check_places(model: Any, layers: list[tuple[str, Any]]) -> None:
    """Check that a module has all its parameters in its layers, and each layer in one place.

    Raises:
        ValueError: it has not.
    """
    layered = dict(layers)
    inside = {one for _, layer in layers for one in layer.modules()}
    for name, one in model.named_modules():
        own = [*one.parameters(recurse=False), *one.buffers(recurse=False)]
        if one not in inside and own:
            raise ValueError(
                f"{name or 'the module'!r} has parameters beside its layers; move them into one"
            )
    places: dict[Any, list[str]] = {}
    for name, one in model.named_modules(remove_duplicate=False):
        if one in layered.values():
            places.setdefault(one, []).append(name)
    for names in places.values():
        if len(names) > 1:
            raise ValueError(
                f"{' and '.join(names)} are the same layer, and the plan has several stages; give "
                "each place a layer of its own"
            )


def _check_equal(torch: Any, model: Any, device: Any) -> None:
    """Check that the processes have made the same weights, by the sum of their bits.

    Raises:
        ValueError: they have not; in every process.
    """
    dist, total, count = torch.distributed, 0, 0
    for one in model.parameters():
        count += 1
        bits = one.detach().contiguous().reshape(-1).view(torch.uint8)
        total = (total + count * int(bits.sum(dtype=torch.int64))) % 2**62
    mine = torch.tensor([count, total], device=device)
    first = mine.clone()
    dist.broadcast(first, src=0)
    differs = (mine != first).any().to(torch.int32)
    dist.all_reduce(differs)
    if differs:
        raise ValueError(
            "the processes have made different weights; call torch.manual_seed with the same "
            "number in each of them before the module is made"
        )


def _chunks_of(layers: list[tuple[str, Any]], plan: Plan, stage: int) -> list[range]:
    """Return the layers of each chunk of a stage."""
    if plan.pipeline == 1:
        return [range(len(layers))]
    return _cut([type(one) for _, one in layers], plan)[stage :: plan.pipeline]


def _cut(kinds: list[type], plan: Plan) -> list[range]:
    """Return the layers of each chunk of each stage, in the order in which samples pass them.

    Args:
        kinds: classes of the layers.
        plan: the plan.

    Raises:
        ValueError: the layers cannot be spread.
    """
    if plan.stages:
        if sum(plan.stages) != len(kinds):
            raise ValueError(
                f"'stages' of the plan are {', '.join(map(str, plan.stages))}, together "
                f"{sum(plan.stages)} layers; the module has {len(kinds)}"
            )
        ends = list(itertools.accumulate(plan.stages))
    else:
        runs = [len(list(same)) for _, same in itertools.groupby(kinds)]
        longest = runs.index(max(runs))
        begin, equal = sum(runs[:longest]), runs[longest]
        chunks = plan.pipeline * plan.chunks
        if equal % chunks:
            raise ValueError(
                f"the module has {equal} equal layers in a row; they do not split into {chunks} "
                f"chunks (pipeline {plan.pipeline}, chunks {plan.chunks})"
            )
        ends = [begin + equal // chunks * (i + 1) for i in range(chunks - 1)] + [len(kinds)]
    return [range(first, end) for first, end in itertools.pairwise([0, *ends])]


def _remove(model: Any, names: set[str]) -> None:
    """Remove layers of other processes; the others keep their names."""
    for name in names:
        parent, _, own = name.rpartition(".")
        delattr(model.get_submodule(parent), own)


def _tied(layers: list[tuple[str, Any]]) -> set[Any]:
    """Return the layers with a parameter that another layer has, too."""
    owners: dict[int, list[Any]] = {}
    for _, layer in layers:
        for one in layer.parameters():
            owners.setdefault(id(one), []).append(layer)
    return {layer for some in owners.values() if len(some) > 1 for layer in some}


def _owners(modules: Iterable[tuple[str, Any]]) -> dict[int, list[str]]:
    """Return id of a parameter -> names of the modules that have it themselves."""
    found: dict[int, list[str]] = {}
    for name, module in modules:
        for one in module.parameters(recurse=False):
            found.setdefault(id(one), []).append(name)
    return found


def _find_shared(model: Any, tensor: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Return name -> module and share, of the modules that workers share.

    Raises:
        ValueError: a share is unknown, or a pattern is that of no module.
    """
    found: dict[str, tuple[Any, str]] = {}
    modules = dict(model.named_modules())
    for pattern, share in tensor.items():
        if share not in _SHARES:
            raise ValueError(
                f"'tensor' has {share!r} for {pattern!r}; it may be {' or '.join(_SHARES)}"
            )
        names = [name for name in modules if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            raise ValueError(f"'tensor' has {pattern!r}, and no module has such a name")
        for name in names:
            found.setdefault(name, (modules[name], share))
    return found


def _check_share(torch: Any, name: str, module: Any, share: str, workers: int) -> None:
    """Check that a module can be shared.

    Raises:
        ValueError: it cannot.
    """
    can_be_shared = isinstance(module, torch.nn.Linear | torch.nn.Embedding)
    if not can_be_shared:
        raise ValueError(
            f"'tensor' names {name!r}, a {type(module).__name__}; only Linear and Embedding can be "
            "shared"
        )
    # A linear layer stores its columns first, an embedding its rows.
    is_first = (share == "columns") == isinstance(module, torch.nn.Linear)
    size = module.weight.shape[0 if is_first else 1]
    if size % workers:
        raise ValueError(f"{name!r} has {size} {share}; {workers} workers cannot share them evenly")


def _style(torch: Any, module: Any, share: str, *, is_last: bool) -> Any:
    """Return how workers share a module.

    An embedding returns whole vectors, and the last layer all outputs.
    """
    parallel = importlib.import_module("torch.distributed.tensor.parallel")
    whole = importlib.import_module("torch.distributed.tensor").Replicate()
    is_embedding = isinstance(module, torch.nn.Embedding)
    if share == "rows":
        return parallel.RowwiseParallel(**{"input_layouts": whole} if is_embedding else {})
    gathers = is_embedding or is_last
    return parallel.ColwiseParallel(**{"output_layouts": whole} if gathers else {})


def _share(part: Any, mesh: Any, shares: Mapping[Any, Any]) -> None:
    """Give each worker of a tensor group its part of the matrices of a module, once."""
    parallel = importlib.import_module("torch.distributed.tensor.parallel")
    for module in list(part.modules()):
        if module in shares and not hasattr(module.weight, "device_mesh"):
            parallel.parallelize_module(module, mesh, shares[module])


def _recompute(layer: Any) -> None:
    """Make a layer compute its activations again in the backward pass."""
    again = importlib.import_module("torch.utils.checkpoint").checkpoint
    layer.forward = functools.partial(again, layer.forward, use_reentrant=False)


def _shard(
    torch: Any, module: Any, *, plan: Plan, mesh: Any, precision: str, returns: bool = False
) -> None:
    """Share a module among the copies.

    Args:
        torch: the library.
        module: a layer, or all layers of a chunk.
        plan: the plan.
        mesh: the processes.
        precision: see ``apply``.
        returns: whether it returns the output of the whole model.
    """
    fsdp = importlib.import_module("torch.distributed.fsdp")
    policy = fsdp.MixedPrecisionPolicy()
    if precision == "bf16":
        output = torch.float32 if returns else None
        policy = fsdp.MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=output
        )
    pins = mesh.device_type != "cpu"
    fsdp.fully_shard(
        module,
        mesh=mesh["copies", "shards"] if plan.zero == 0 else mesh["shards"],
        reshard_after_forward=plan.zero == 3,
        mp_policy=policy,
        offload_policy=fsdp.CPUOffloadPolicy(pin_memory=pins)
        if plan.offload
        else fsdp.OffloadPolicy(),
    )
