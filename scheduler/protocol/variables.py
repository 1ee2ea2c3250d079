"""Variables that the scheduler adds to a job's own.

Agents of the previous release pass them on with the others.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.domain.jobs.spec import JobSpec

#: The limits within which a job may choose its batch, as a JSON object; the SDK reads it.
BATCH: Final = "LEASEHOLD_BATCH"
#: Worker type and pace of each rank of a mixed gang, as JSON lists; the SDK reads the paces.
WORKER_TYPES, PACES = "LEASEHOLD_WORKER_TYPES", "LEASEHOLD_PACES"


def variables_of(
    spec: JobSpec, gang: Sequence[str] = (), paces: Sequence[float] = ()
) -> Mapping[str, str]:
    """Return a job's own variables, its limits of the batch, and the paces of a mixed gang.

    Args:
        spec: of the job.
        gang: (n,) worker type of each rank, if ``paces`` has them.
        paces: (n,) steps/s of each rank's worker; empty if they are of one type.
    """
    more: dict[str, object] = {}
    if spec.batch:
        more[BATCH] = dict(spec.batch)
    if paces:
        more |= {WORKER_TYPES: gang, PACES: paces}
    if not more:
        return spec.env
    values = {name: orjson.dumps(value).decode() for name, value in more.items()}
    return MappingProxyType({**spec.env, **values})
