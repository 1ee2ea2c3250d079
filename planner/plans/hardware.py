"""The catalogue of accelerators: published rates, and those of a user's own file."""

from __future__ import annotations

import difflib
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import yaml

from scheduler.errors import InputError

BUNDLED: Final = Path(__file__).with_name("hardware.yaml")

_Rate = Annotated[float, msgspec.Meta(gt=0, lt=1e9)]


class Accelerator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Highest rates of a worker; each direction of a link counts alone.

    Attributes:
        tflops: precision -> 10^12 FLOP/s.
        memory_gb: its memory in 10^9 bytes.
        memory_gb_per_s: bandwidth of its memory.
        link_gb_per_s: to the other accelerators of its node.
        host_gb_per_s: to the memory of its host; 0 if that is not known.
        per_node: accelerators of a usual node.
        network_gb_per_s: of such a node, all its adapters together.
        also: other names.
        source: where the figures are from.
    """

    tflops: dict[str, _Rate]
    memory_gb: _Rate
    memory_gb_per_s: _Rate
    link_gb_per_s: _Rate
    host_gb_per_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 0.0
    per_node: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    network_gb_per_s: _Rate
    also: tuple[str, ...] = ()
    source: str = ""

    def flops(self, precision: str) -> float:
        """Return the FLOP/s in a precision.

        Raises:
            InputError: it does not compute in that precision.
        """
        if precision not in self.tflops:
            raise InputError(
                f"precision is '{precision}'; the accelerator has {', '.join(sorted(self.tflops))}"
            )
        return self.tflops[precision] * 1e12


class Hardware:
    """Accelerators by name; equal if they have the same content.

    Args:
        accelerators: name -> accelerator.
    """

    def __init__(self, accelerators: dict[str, Accelerator]) -> None:
        self.accelerators = accelerators
        self._names = {
            plain_name(other): name
            for name, one in accelerators.items()
            for other in (*one.also, name)
        }

        digest = hashlib.sha256(msgspec.json.encode(accelerators, order="sorted")).digest()
        self._digest = int.from_bytes(digest[:8], "big", signed=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hardware) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def has(self, worker_type: str) -> bool:
        """Return whether there is an accelerator of that name."""
        return plain_name(worker_type) in self._names

    def find(self, worker_type: str) -> Accelerator:
        """Return the accelerator of a worker type; small and large letters are the same.

        Raises:
            InputError: the catalogue has none of that name.
        """
        name = self._names.get(plain_name(worker_type))
        if name is None:
            near = difflib.get_close_matches(plain_name(worker_type), self._names, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            raise InputError(
                f"no accelerator is named '{worker_type}'{hint} There are "
                f"{', '.join(sorted(self.accelerators))}; describe others in a file"
            )
        return self.accelerators[name]


def plain_name(name: str) -> str:
    """Return a name with small letters and hyphens, as names are compared."""
    return name.lower().replace("_", "-")


def read_hardware(own: Any = None, *, place: str = "hardware") -> Hardware:
    """Return the catalogue, with a user's accelerators in front.

    Args:
        own: name -> values of an accelerator, as a document of YAML has them; None for none.
        place: the file of these, for messages.

    Raises:
        InputError: a value cannot be used.
    """
    usual = _bundled()
    return usual if own is None else Hardware(usual.accelerators | _accelerators(own, place))


@cache
def _bundled() -> Hardware:
    document = yaml.safe_load(BUNDLED.read_text(encoding="utf-8"))
    return Hardware(_accelerators(document, str(BUNDLED)))


def _accelerators(document: Any, place: str) -> dict[str, Accelerator]:
    if not isinstance(document, dict):
        raise InputError(f"{place} is {document!r}; it must map names to accelerators")
    return {str(name): _accelerator(entry, f"{place}: {name}") for name, entry in document.items()}


def _accelerator(entry: Any, place: str) -> Accelerator:
    try:
        return msgspec.convert(entry, Accelerator)
    except msgspec.ValidationError as error:
        field = re.search(r"at `\$\.(\w+)", str(error))
        value = entry if field is None else entry[field[1]]
        said = str(error).partition(" - at")[0]
        name = f"{place}.{field[1]}" if field else place
        raise InputError(f"{name} is {value!r}: {said}") from error
