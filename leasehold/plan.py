"""The plan of a job: how its model is split over its workers.

The scheduler puts the plan of each lease into LEASEHOLD_PLAN; ``leasehold.torch.apply`` carries it
out. Standard library only: jobs have no planner, so the fields of ``planner.plans.plan.Plan`` stand
here, too, and a test compares them.
"""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass, fields
from typing import Any

#: The plan of a lease, as JSON.
PLAN_VARIABLE = "LEASEHOLD_PLAN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One split.

    Attributes:
        tensor: workers that share each matrix.
        pipeline: stages of layers, one after another.
        data: copies of the model that share the batch.
        microbatch: samples that pass a stage at once.
        chunks: chunks of layers of each stage; more than 1 is the interleaved schedule.
        recompute: whether activations within a layer are computed again in the backward pass.
        zero: stage of ZeRO: copies share nothing (0), the optimiser's state (1), gradients too (2),
            weights too (3).
        offload: whether the optimiser and its state are on the host.
        stages: numbers of layers of the stages; empty if these have equal numbers of equal layers.

    Raises:
        ValueError: a field cannot be used; the message names the field and its value.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    microbatch: int = 1
    chunks: int = 1
    recompute: bool = False
    zero: int = 0
    offload: bool = False
    stages: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse unusable values."""
        for name in ("tensor", "pipeline", "data", "microbatch", "chunks"):
            _check_count(name, getattr(self, name), least=1)
        _check_count("zero", self.zero, least=0)
        if self.zero > 3:
            raise ValueError(f"'zero' of the plan is {self.zero}; it may be 0 to 3")
        for name in ("recompute", "offload"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(
                    f"'{name}' of the plan is {getattr(self, name)!r}; it is true or false"
                )
        if self.chunks > 1 and self.pipeline == 1:
            raise ValueError(f"'chunks' of the plan is {self.chunks}; that needs several stages")
        if self.chunks > 1 and self.stages:
            raise ValueError(
                f"'chunks' of the plan is {self.chunks}, and 'stages' are given; leave one out"
            )
        for layers in self.stages:
            _check_count("stages", layers, least=1)
        if self.stages and len(self.stages) != self.pipeline:
            raise ValueError(
                f"'stages' of the plan has {len(self.stages)} numbers; 'pipeline' is "
                f"{self.pipeline}"
            )

    @property
    def workers(self) -> int:
        """Workers of the plan."""
        return self.tensor * self.pipeline * self.data

    @classmethod
    def read(cls, text: str) -> Plan:
        """Return a plan from JSON, as it stands in LEASEHOLD_PLAN.

        Fields of later versions are left out with a warning.

        Raises:
            ValueError: the text is no such plan.
        """
        try:
            values: Any = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the plan {text[:200]!r} is no JSON: {error}") from error
        if type(values) is not dict:
            raise ValueError(f"the plan {text[:200]!r} is no object of JSON")
        known = {one.name for one in fields(cls)}
        if unknown := sorted(values.keys() - known):
            warnings.warn(
                f"the plan has fields that this version does not know: {', '.join(unknown)}; "
                "update leasehold-sdk where the job runs",
                RuntimeWarning,
                stacklevel=2,
            )
        if type(values.get("stages", [])) is not list:
            raise ValueError(f"'stages' of the plan is {values['stages']!r}; it is a list")
        kept = {name: value for name, value in values.items() if name in known}
        return cls(**kept | {"stages": tuple(kept.get("stages", ()))})

    @classmethod
    def current(cls, default: Plan | None = None) -> Plan:
        """Return the plan of this lease.

        Args:
            default: the plan if LEASEHOLD_PLAN is not set, as in a run by hand.

        Raises:
            ValueError: there is neither, the plan cannot be read, or it is for another number of
                workers than WORLD_SIZE.
        """
        text = os.environ.get(PLAN_VARIABLE, "")
        if text:
            plan = cls.read(text)
        elif default is not None:
            plan = default
        else:
            raise ValueError(
                f"{PLAN_VARIABLE} is not set; submit the job with a 'model', or give a default plan"
            )
        workers = int(os.environ.get("WORLD_SIZE", "1"))
        if plan.workers != workers:
            raise ValueError(
                f"the plan is for {plan.workers} workers (tensor {plan.tensor}, pipeline "
                f"{plan.pipeline}, data {plan.data}), and WORLD_SIZE is {workers}"
            )
        return plan


def _check_count(name: str, value: Any, *, least: int) -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"'{name}' of the plan is {value!r}; it is a whole number from {least} on")
