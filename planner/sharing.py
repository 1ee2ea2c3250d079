"""Costs of sharing workers: declared figures, kept beside the throughputs alone."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.domain.throughputs.throughput import ProfileKey, SharingCost

_VERSION: Final = 1
_NONE: Final[Mapping[str, tuple[float, float]]] = MappingProxyType({})


class SharingCosts:
    """Speeds of two jobs that share workers, as parts of their speeds alone.

    Attributes:
        declared: number of declarations that changed a figure.
    """

    def __init__(self) -> None:
        #: (first, second) -> worker type -> part of the speed alone, for each; in both orders.
        self._parts: dict[tuple[ProfileKey, ProfileKey], dict[str, tuple[float, float]]] = {}
        self._keys: set[ProfileKey] = set()
        self.declared = 0

    def declare(
        self,
        first: ProfileKey,
        second: ProfileKey,
        worker_type: str,
        parts: tuple[float, float],
    ) -> bool:
        """Store the cost of sharing for two jobs on a worker type.

        Args:
            first: job type and scale factor of one job.
            second: the same of the other job.
            worker_type: hardware class.
            parts: speed of each while they share, over its speed alone.

        Returns:
            Whether the figure has changed.
        """
        if self.of(first, second).get(worker_type) == parts:
            return False
        self._parts.setdefault((first, second), {})[worker_type] = parts
        self._parts.setdefault((second, first), {})[worker_type] = parts[1], parts[0]
        self._keys |= {first, second}
        self.declared += 1
        return True

    def of(self, first: ProfileKey, second: ProfileKey) -> Mapping[str, tuple[float, float]]:
        """Return worker type -> part of its speed alone that each of two jobs keeps."""
        return self._parts.get((first, second), _NONE)

    def knows(self, key: ProfileKey) -> bool:
        """Return whether a cost of sharing is known for a job type with any other."""
        return key in self._keys

    def known(self) -> Iterator[SharingCost]:
        """Yield every pair once, sorted: first, second, worker type and parts."""
        for first, second in sorted(self._parts):
            if first <= second:
                for worker_type, parts in sorted(self._parts[first, second].items()):
                    yield first, second, worker_type, parts

    def dump(self) -> dict[str, Any]:
        """Return all figures as plain JSON values."""
        pairs = [
            [*first, *second, worker_type, *parts]
            for first, second, worker_type, parts in self.known()
        ]
        return {"version": _VERSION, "pairs": pairs}

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> SharingCosts:
        """Return the costs that ``dump`` stored.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        if data.get("version") != _VERSION:
            raise InputError(
                f"stored costs of sharing have version {data.get('version')!r}; this release "
                f"reads {_VERSION}; run the release that wrote them"
            )
        costs = cls()
        try:
            for one, count, other, its_count, worker_type, part, its_part in data["pairs"]:
                key, its_key = (str(one), int(count)), (str(other), int(its_count))
                costs.declare(key, its_key, str(worker_type), (float(part), float(its_part)))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"stored costs of sharing are damaged: {error!r}") from error
        return costs
