"""The catalogue: the profiles of a live service."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.jobs.spec import digest_of_model
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.domain.jobs.spec import JobSpec

_VERSION: Final = 1
#: Models of jobs that have ended which are remembered, at least.
MOST_MODELS: Final = 256


class Catalogue:
    """Profiles of jobs in order of arrival. A profile keeps its index."""

    def __init__(self) -> None:
        #: profile -> key; only grows.
        self._keys: list[CatalogueKey] = []
        #: the inverse of ``_keys``.
        self._index: dict[CatalogueKey, int] = {}
        #: id of a job with a variable batch -> number that no other active such job has.
        self._learners: dict[str, int] = {}
        #: job type -> model of its jobs, least recently submitted first; see ``JobSpec.model``.
        self._models: dict[str, str] = {}
        #: how often a key was added or exchanged.
        self.changes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: CatalogueKey) -> bool:
        return key in self._index

    @property
    def keys(self) -> Sequence[CatalogueKey]:
        """The key of each profile: the properties that its jobs share."""
        return self._keys

    def profile_of(self, spec: JobSpec, job_id: str = "") -> int:
        """Return the profile of a job, appending the profile if it is new."""
        key = CatalogueKey.of(spec, self._number(job_id) if spec.batch and job_id else "")
        if key.model:
            self._models.pop(key.job_type, None)
            self._models[key.job_type] = key.model
            self._exchange(_with_digest(key), key)
        if key not in self._index:
            self._index[key] = len(self._keys)
            self._keys.append(key)
            self.changes += 1
        return self._index[key]

    def model(self, job_type: str) -> str:
        """Return the model of a job type; empty if its jobs give none, or it was forgotten."""
        return self._models.get(job_type, "")

    @property
    def models(self) -> Iterable[str]:
        """The models that are known."""
        return self._models.values()

    def forget_models(self, active: Iterable[str]) -> dict[str, str]:
        """Drop models of jobs that have ended, if there are too many; return these by job type.

        Args:
            active: job types of active jobs; read only if there are too many models.
        """
        if len(self._models) <= MOST_MODELS:
            return {}
        ended = self._models.keys() - set(active)
        oldest = [job_type for job_type in self._models if job_type in ended]
        gone = set(oldest[: len(self._models) - MOST_MODELS // 2])
        for key in [key for key in self._keys if key.model and key.job_type in gone]:
            self._exchange(key, _with_digest(key))
        return {name: self._models.pop(name) for name in gone}

    def _exchange(self, old: CatalogueKey, new: CatalogueKey) -> None:
        """Put a key in the place of another, if there is one, which knows more or less of it."""
        if old != new and old in self._index:
            place = self._index[new] = self._index.pop(old)
            self._keys[place] = new
            self.changes += 1

    def key(self, profile: int) -> CatalogueKey:
        """Return the key of a profile: the properties that its jobs share."""
        return self._keys[profile]

    def learner(self, job_id: str) -> str:
        """Return the number of a job with a variable batch as text; empty for other jobs."""
        return str(self._learners[job_id]) if job_id in self._learners else ""

    def keep_learners(self, active: Iterable[str]) -> set[str]:
        """Free the numbers of jobs that have ended; return the numbers in use.

        Args:
            active: ids of jobs; read only if a job has a number.
        """
        if self._learners:
            stay = set(active)
            self._learners = {job: n for job, n in self._learners.items() if job in stay}
        return set(map(str, self._learners.values()))

    def _number(self, job_id: str) -> str:
        """Return the number of a job with a variable batch; a new one gets the smallest free."""
        if job_id not in self._learners:
            taken = set(self._learners.values())
            self._learners[job_id] = next(n for n in count(1) if n not in taken)
        return str(self._learners[job_id])

    # -- state ------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the profiles as plain JSON values."""
        learners = {"learners": dict(self._learners)} if self._learners else {}
        return {
            "version": _VERSION,
            **learners,
            "profiles": [_plain(key) for key in self._keys],
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Catalogue:
        """Return the catalogue that ``dump`` stored.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        if data.get("version") != _VERSION:
            raise InputError(
                f"stored profiles have version {data.get('version')!r}; this release reads "
                f"{_VERSION}; run the release that wrote them"
            )
        catalogue = cls()
        try:
            for entry in data["profiles"]:
                values: dict[str, Any] = {
                    n: tuple(v) if isinstance(v, list) else v for n, v in entry.items()
                }
                key = CatalogueKey(**values)
                catalogue._index[key] = len(catalogue._keys)
                catalogue._keys.append(key)
            catalogue._learners.update(data.get("learners", {}))
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"stored profiles are damaged: {error!r}") from error
        return catalogue


def _plain(key: CatalogueKey) -> dict[str, Any]:
    """Return a key as plain JSON values, without the model, which its jobs have.

    Fields that the previous release does not know are left out if they have their default.
    """
    values = asdict(_with_digest(key))
    for name in () if key.batch else ("batch", "learner"):
        del values[name]
    for name in ("mixed_gangs", "model"):
        if not values[name]:
            del values[name]
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def _with_digest(key: CatalogueKey) -> CatalogueKey:
    """Return a key with the digest of its model in the place of the model."""
    if not key.model.startswith("{"):
        return key
    return replace(key, model=digest_of_model(key.model))
