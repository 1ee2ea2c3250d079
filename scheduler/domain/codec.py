"""Domain values as plain structures, and back: what journals, snapshots and messages are made of.

A structure holds only dict, list, str, int, float, bool and None, every float is finite and every
dict has text keys, so that any JSON library can carry it. A dataclass becomes a dict with its name
under ``"type"`` beside its fields; a sequence becomes a list and comes back as a tuple. Values
without a plain form (infinite numbers, enumerations, mappings, arrays) become dicts with types of
their own.

The outermost dict also carries the version of these rules. A field that a stored value lacks takes
the default of its class, so a field with a default may be added at any time. A renamed field keeps
its name in stored data: the class states it in ``STORED_NAMES``. Removed fields are ignored if the
class lists them in ``DROPPED_FIELDS``. Any other change needs a new version, and a step from the
old one.
"""

from __future__ import annotations

import base64
import binascii
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any, Final, cast, get_args

import numpy as np

from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.configuration import (
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
)
from scheduler.domain.facts import commands, events
from scheduler.domain.facts.causes import Cause, FactKind, Ground, Occasion
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.facts.troubles import Trouble
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.lease import Lease, Leases
from scheduler.domain.lease_life import EndReason, LeasePhase, RevokeReason
from scheduler.domain.problem import Entity, Problem
from scheduler.domain.quota import Caps, IdleQuota, Quota
from scheduler.domain.reservation import Reservation
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import CodecError, LeaseholdError

#: Version of the rules above; stored data of a higher one are refused.
VERSION: Final = 1

#: Every dataclass and enumeration of the domain.
DOMAIN_TYPES: Final[tuple[type, ...]] = (
    *(Allocation, Cluster, Node, WorkerType, Job, JobStatus, Entity, Problem),
    *(Quota, IdleQuota, Caps),
    *(Lease, Leases, EndReason, LeasePhase, RevokeReason),
    *(Configuration, PairConfiguration, Profile, ConfigurationTable, ThroughputTable),
    *(JobSpec, WaitReason, Trouble, Reservation),
    *(Cause, FactKind, Ground, Occasion),
    *get_args(commands.Command),
    *get_args(commands.Batch),
    *get_args(events.Event),
)

_ARRAY_KINDS: Final = "biuf"
_PLAIN: Final = frozenset({str, int, bool, type(None)})


class Codec:
    """Turns values of known types into plain structures and back.

    Args:
        types: dataclasses and enumerations, known by their names, which must differ.

    Raises:
        CodecError: two types have the same name.
    """

    def __init__(self, types: tuple[type, ...]) -> None:
        self._types: dict[str, type] = {}
        self._fields: dict[str, dict[str, str]] = {}  # type -> stored name -> field
        self._dropped: dict[str, frozenset[str]] = {}
        self._required: dict[str, frozenset[str]] = {}
        for known in types:
            self._add(known)
        self._special: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "array": _decode_array,
            "float": _decode_float,
            "map": self._decode_map,
        }

    def _add(self, known: type) -> None:
        name = known.__name__
        if name in self._types:
            raise CodecError(f"two types are called '{name}'; a codec needs different names")
        self._types[name] = known
        if not issubclass(known, enum.Enum):
            own = fields(cast("Any", known))
            stored: Mapping[str, str] = getattr(known, "STORED_NAMES", {})
            self._fields[name] = {stored.get(f.name, f.name): f.name for f in own}
            self._dropped[name] = getattr(known, "DROPPED_FIELDS", frozenset())
            self._required[name] = frozenset(
                stored.get(f.name, f.name)
                for f in own
                if f.default is MISSING and f.default_factory is MISSING
            )

    def encode(self, value: object) -> dict[str, Any]:
        """Return the plain structure of a value.

        Args:
            value: a dataclass that the codec knows.

        Raises:
            CodecError: the value, or something inside it, has no plain form.
        """
        if type(value).__name__ not in self._fields:
            raise CodecError(
                f"{type(value).__name__} {_shown(value)} cannot be stored; give one of "
                f"{', '.join(sorted(self._fields))}"
            )
        return {"version": VERSION, **self._encode(value)}

    def decode(self, data: Mapping[str, Any]) -> Any:
        """Return the value of a structure that ``encode`` made.

        Raises:
            CodecError: the structure is malformed, of a newer version, or names types and fields
                that this release does not know.
        """
        if not isinstance(data, Mapping):
            raise CodecError(
                f"stored value {_shown(data)} is no mapping; give what encode returned"
            )
        version = data.get("version")
        if type(version) is not int or not 1 <= version <= VERSION:
            raise CodecError(
                f"stored value has version {version!r}; this release reads 1 to {VERSION}; "
                "run the release that wrote it, or a newer one"
            )
        return self._decode({name: part for name, part in data.items() if name != "version"})

    def _encode(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"type": "float", "value": repr(value)}
        if kind is tuple or kind is list:
            return [self._encode(item) for item in value]
        name = kind.__name__
        if self._types.get(name) is kind:
            return self._encode_known(name, value)
        return self._encode_foreign(value)

    def _encode_known(self, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, enum.Enum):
            return {"type": name, "value": value.value}
        encoded = {"type": name}
        for stored, field in self._fields[name].items():
            part = getattr(value, field)
            encoded[stored] = part if type(part) in _PLAIN else self._encode(part)
        return encoded

    def _encode_foreign(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _encode_array(value)
        if isinstance(value, np.generic) and value.dtype.kind in _ARRAY_KINDS:
            return self._encode(value.item())
        if isinstance(value, Mapping):
            items = [[self._encode(key), self._encode(item)] for key, item in value.items()]
            return {"type": "map", "items": items}
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
            return [self._encode(item) for item in value]
        raise CodecError(f"{type(value).__name__} {_shown(value)} has no stored form")

    def _decode(self, data: Any) -> Any:
        kind = type(data)
        if kind in _PLAIN or kind is float:
            return data
        if kind is list:
            return tuple([self._decode(item) for item in data])
        if kind is not dict or "type" not in data:
            raise CodecError(f"stored value {_shown(data)} has no type; the data are damaged")
        name = data["type"]
        if not isinstance(name, str):
            raise CodecError(f"stored value has the type {name!r}, which is no text")
        if special := self._special.get(name):
            return special(data)
        return self._decode_known(name, data)

    def _decode_known(self, name: str, data: dict[str, Any]) -> Any:
        known = self._types.get(name)
        if known is None:
            raise CodecError(
                f"stored value has the type {name!r}, which this release does not know; "
                "run the release that wrote it, or a newer one"
            )
        if issubclass(known, enum.Enum):
            return _decode_enum(known, data)
        self._check_fields(name, data)
        fields_of = self._fields[name]
        known_keys = data.keys() & fields_of.keys()
        arguments = {fields_of[key]: self._decode(data[key]) for key in known_keys}
        try:
            return known(**arguments)
        except (LeaseholdError, TypeError, ValueError) as error:
            raise CodecError(f"stored {name} is not valid: {error}") from error

    def _check_fields(self, name: str, data: dict[str, Any]) -> None:
        given = data.keys() - {"type"}
        if unknown := given - self._fields[name].keys() - self._dropped[name]:
            raise CodecError(
                f"stored {name} has the field '{min(unknown)}', which this release does not know; "
                "run the release that wrote it, or a newer one"
            )
        if missing := self._required[name] - given:
            raise CodecError(
                f"stored {name} lacks the field '{min(missing)}'; the data are damaged"
            )

    def _decode_map(self, data: Mapping[str, Any]) -> Mapping[Any, Any]:
        try:
            return MappingProxyType(
                {self._decode(key): self._decode(item) for key, item in data["items"]}
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CodecError(f"stored map {_shown(data)} is damaged: {error}") from error


def _encode_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    if array.dtype.kind not in _ARRAY_KINDS:
        raise CodecError(f"an array of {array.dtype} has no stored form; give numbers or booleans")
    return {
        "type": "array",
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        # A table's arrays are locked and an allocation's are not: replay must see the same.
        "writeable": bool(array.flags.writeable),
        "data": base64.b64encode(np.ascontiguousarray(array).data).decode("ascii")
        if array.size
        else "",
    }


def _decode_array(data: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    try:
        dtype = np.dtype(data["dtype"])
        if dtype.kind not in _ARRAY_KINDS:
            raise CodecError(f"stored array is of {dtype}; only numbers and booleans can be read")
        raw = bytearray(base64.b64decode(data["data"], validate=True))
        flat = np.frombuffer(raw, dtype=dtype) if raw else np.empty(0, dtype=dtype)
        array = flat.reshape(data["shape"]).astype(dtype.newbyteorder("="), copy=False)
        array.setflags(write=data["writeable"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CodecError(f"stored array {_shown(data)} is damaged: {error}") from error
    return array


def _decode_float(data: Mapping[str, Any]) -> float:
    try:
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[data["value"]]
    except (KeyError, TypeError) as error:
        raise CodecError(f"stored number {_shown(data)} is neither inf, -inf nor nan") from error


def _decode_enum(known: type[enum.Enum], data: Mapping[str, Any]) -> enum.Enum:
    try:
        return known(data.get("value"))
    except ValueError as error:
        raise CodecError(
            f"stored {known.__name__} has the value {data.get('value')!r}, which this release does "
            f"not know; it knows {', '.join(str(member.value) for member in known)}"
        ) from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_DOMAIN: Final = Codec(DOMAIN_TYPES)


def encode(value: object) -> dict[str, Any]:
    """Return the plain structure of an event, a command or another value of the domain.

    Raises:
        CodecError: the value, or something inside it, has no plain form.
    """
    return _DOMAIN.encode(value)


def decode(data: Mapping[str, Any]) -> Any:
    """Return the value that ``encode`` was given.

    Raises:
        CodecError: the structure is malformed, of a newer version, or names types and fields that
            this release does not know.
    """
    return _DOMAIN.decode(data)
