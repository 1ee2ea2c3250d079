"""The layers of a PyTorch module as a list for ``leasehold plan``.

The module is made on the device ``meta`` and traced with fake tensors: nothing is computed, and
weights need no memory.
"""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(slots=True)
class _Layer:
    """Counts of a layer, for one sample."""

    name: str
    kind: str
    parameters: int = 0
    flops: int = 0
    kept_bytes: int = 0
    output_bytes: int = 0


def describe_layers(
    make: Callable[[], tuple[Any, Any]], *, name: str = "", sequence: int | None = None
) -> dict[str, Any]:
    """Return the layers of a module, as a document for ``leasehold plan``.

    Layers are the elements of each ``Sequential`` and ``ModuleList``, and the modules beside these.
    A ``Sequential`` with a ``forward`` of its own is one layer.
    Operations outside of any layer count for the layer before, or for the first one. Attention by
    ``scaled_dot_product_attention`` counts as a fused kernel, which keeps no scores.

    Args:
        make: returns the module and its inputs for one sample: a tensor, a tuple of positional
            arguments or a dictionary of named ones. It is called with ``meta`` as the default
            device.
        name: of the model; by default the class of the module.
        sequence: tokens of a sample; by default those of the first input of whole numbers with
            two sizes, or 1.

    Raises:
        ValueError: the module cannot be traced, the inputs are not of one sample, or plans do not
            know the precision.
    """
    torch = importlib.import_module("torch")
    with torch.device("meta"):
        made = make()
        if not (
            isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)
        ):
            raise ValueError("the function must return a module and the inputs of one sample")
        module, inputs = made
        tensors = list(_tensors(torch, inputs))
        sized = [one for one in tensors if one.dim()]
        if not tensors or any(one.shape[0] != 1 or not one.numel() for one in sized):
            shapes = [tuple(one.shape) for one in tensors]
            raise ValueError(
                f"the inputs have the shapes {shapes}; give one sample: a first size of 1, and no "
                "size of 0"
            )
        trace = _Trace(torch, module.to("meta"))
        trace.run(inputs)
    if sequence is None:
        tokens = [one for one in tensors if one.dtype in {torch.int32, torch.int64}]
        sequence = next((one.shape[1] for one in tokens if one.dim() == 2), 1)
    return {
        "name": name or type(module).__name__,
        "sequence": sequence,
        "precision": _precision(torch, module),
        "layers": _merged(trace.layers),
    }


def _precision(torch: Any, module: Any) -> str:
    """Return the precision of most parameters."""
    names = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
    counts: dict[Any, int] = {torch.float32: 0}
    for one in module.parameters():
        counts[one.dtype] = counts.get(one.dtype, 0) + one.numel()
    dtype = max(counts, key=counts.__getitem__)
    if dtype not in names:
        raise ValueError(f"the parameters are {dtype}; plans know {', '.join(names.values())}")
    return names[dtype]


def _merged(layers: list[_Layer]) -> list[dict[str, Any]]:
    """Return equal layers that follow one another as one entry."""

    def sizes(one: _Layer) -> tuple[Any, ...]:
        return one.kind, one.parameters, one.flops, one.kept_bytes, one.output_bytes

    found = []
    for _, group in groupby(layers, key=sizes):
        equal = list(group)
        found.append(
            {
                "name": equal[0].name,
                "repeat": len(equal),
                "parameters": equal[0].parameters,
                "flops": equal[0].flops,
                "kept_bytes": equal[0].kept_bytes,
                "output_bytes": equal[0].output_bytes,
            }
        )
    return found


def find_layers(torch: Any, module: Any) -> list[tuple[str, Any]]:
    """Return the names and modules of the layers of a module; see ``describe_layers``.

    A module without others is its own layer.
    """
    return list(_layers_in(torch, module, "")) or [("", module)]


def is_plain(torch: Any, module: Any) -> bool:
    """Return whether a module only holds others, or passes a sample from one to the next."""
    sequential = torch.nn.Sequential
    passes = isinstance(module, sequential) and type(module).forward is sequential.forward
    return passes or isinstance(module, torch.nn.ModuleList)


def _layers_in(torch: Any, module: Any, name: str) -> Iterator[tuple[str, Any]]:
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}" if name else child_name
        holds_list = any(is_plain(torch, one) for one in child.modules())
        if is_plain(torch, child) or (holds_list and not is_plain(torch, module)):
            yield from _layers_in(torch, child, path)
        else:
            yield path, child


class _Trace:
    """Counts what each layer of a module does in a forward pass.

    Args:
        torch: the library.
        module: on the device ``meta``; its tensors are replaced by fake ones.
    """

    def __init__(self, torch: Any, module: Any) -> None:
        self.layers: list[_Layer] = []
        self._before = _Layer(name="", kind="")  # operations before the first layer
        self._torch = torch
        self._module = module
        self._flop_counter = importlib.import_module("torch.utils.flop_counter")
        self._counter: Any = None
        self._flops_before = 0
        self._counted: set[int] = set()
        # Models ask whether tensors are fake before they look at values.
        fake = importlib.import_module("torch._subclasses.fake_tensor")
        self._fake = fake.FakeTensorMode(allow_non_fake_inputs=True)
        for one in module.modules():
            for tensors in (one._parameters, one._buffers):  # noqa: SLF001  they replace any
                for name, tensor in tensors.items():
                    tensors[name] = tensor if tensor is None else self._fake.from_tensor(tensor)
        # Storages are referred to, so that no other one gets the number of one that is gone.
        self._storages = {
            _storage_key(one): one.untyped_storage()
            for one in (*module.parameters(), *module.buffers())
        }

    def run(self, inputs: Any) -> None:
        """Trace a forward pass.

        Raises:
            ValueError: the module needs values.
        """
        torch = self._torch
        named = inputs if isinstance(inputs, dict) else {}
        arguments = () if named else inputs if isinstance(inputs, tuple) else (inputs,)
        self._counter = self._flop_counter.FlopCounterMode(display=False)
        found = find_layers(torch, self._module)
        with contextlib.ExitStack() as stack:
            for name, module in found:
                enter = module.register_forward_pre_hook(self._entering(name))
                leave = module.register_forward_hook(self._leave)
                stack.callback(enter.remove)
                stack.callback(leave.remove)
            stack.enter_context(self._fake)
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._keep, _same))
            stack.enter_context(self._fused_attention())
            stack.enter_context(self._counter)
            try:
                self._module(*arguments, **named)
            except (NotImplementedError, RuntimeError) as error:
                raise ValueError(
                    f"{type(self._module).__name__} cannot be traced without values: {error}"
                ) from error
            self._count_flops()
        if not self.layers:
            raise ValueError(f"{type(self._module).__name__} calls none of its modules")
        self.layers[0].parameters += self._uncounted(self._module)
        self.layers[0].flops += self._before.flops
        self.layers[0].kept_bytes += self._before.kept_bytes

    def _entering(self, name: str) -> Callable[[Any, Any], None]:
        def enter(module: Any, _: Any) -> None:
            self._count_flops()
            layer = _Layer(name=name, kind=type(module).__name__)
            layer.parameters = self._uncounted(module)
            self.layers.append(layer)

        return enter

    def _leave(self, _: Any, __: Any, output: Any) -> None:
        self._count_flops()
        tensors = _tensors(self._torch, output)
        self.layers[-1].output_bytes = sum(one.numel() * one.element_size() for one in tensors)

    @property
    def _present(self) -> _Layer:
        return self.layers[-1] if self.layers else self._before

    def _uncounted(self, module: Any) -> int:
        """Return the parameters of a module that no other layer has, and count them."""
        found = {id(one): one.numel() for one in module.parameters()}
        new = found.keys() - self._counted
        self._counted |= new
        return sum(found[key] for key in new)

    def _count_flops(self, more: int = 0) -> None:
        """Add the FLOPs since the last call, and some, to the present layer."""
        total = self._counter.get_total_flops()
        self._present.flops += total - self._flops_before + more
        self._flops_before = total

    def _keep(self, tensor: Any) -> Any:
        """Count a tensor that autograd keeps, once for all tensors on its storage."""
        key = _storage_key(tensor)
        if key not in self._storages:
            self._storages[key] = tensor.untyped_storage()
            self._present.kept_bytes += self._storages[key].nbytes()
        return tensor

    def _fused_attention(self) -> Any:
        """Return a context in which attention keeps queries, keys, values and its output."""
        torch = self._torch
        trace = self
        attention = torch.nn.functional.scaled_dot_product_attention

        function_base: Any = torch.autograd.Function
        mode_base: Any = torch.overrides.TorchFunctionMode

        class Fused(function_base):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, query: Any, key: Any, value: Any) -> Any:
                output = query.new_empty((*query.shape[:-1], value.shape[-1]))
                ctx.save_for_backward(query, key, value, output)
                return output

            @staticmethod
            def backward(ctx: Any, *_: Any) -> Any:
                raise NotImplementedError

        class Mode(mode_base):  # type: ignore[misc]
            def __torch_function__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                kwargs = kwargs or {}
                if function is not attention:
                    return function(*args, **kwargs)
                names = ("query", "key", "value")
                given: list[Any] = [*args[:3], *(kwargs[name] for name in names[len(args) :])]
                query, key, value = given
                pairs = query[..., 0].numel() * key.shape[-2]
                trace._count_flops(2 * pairs * (query.shape[-1] + value.shape[-1]))
                return Fused.apply(query, key, value)

        return Mode()


def _same(tensor: Any) -> Any:
    return tensor


def _storage_key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  PyTorch has no other name for it


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    """Yield the tensors of nested tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(torch, one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(torch, one)
