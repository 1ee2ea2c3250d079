"""Stored forms of the domain's values: what goes in comes out, and damage is named."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import Cluster, Node, WorkerType, parse_cluster_spec
from scheduler.domain.codec import DOMAIN_TYPES, VERSION, Codec, decode, encode
from scheduler.domain.configuration import (
    ANYWHERE,
    CONSOLIDATED,
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
)
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind, Ground
from scheduler.domain.jobs.job import Job
from scheduler.domain.lease import Lease, Leases
from scheduler.domain.lease_life import EndReason
from scheduler.domain.problem import Entity, Problem
from scheduler.domain.quota import IdleQuota, Quota
from scheduler.domain.reservation import Reservation
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import CodecError

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
NUMBERS = st.floats()
COUNTS = st.integers(0, 2**62)
SIZES = st.integers(0, 5)
#: Modules with values that the engine never gets.
NOT_IN_THE_JOURNAL = {"answers", "fields", "knowledge", "profiling", "rows", "sources", "ways"}


def same(a: Any, b: Any) -> bool:
    """Compare part by part: type, shape, every bit of a number, NaN equal to itself."""
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and (a.dtype, a.shape, a.flags.writeable) == (b.dtype, b.shape, b.flags.writeable)
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, float):
        return isinstance(b, float) and (a == b or (math.isnan(a) and math.isnan(b)))
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(
            same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a)
        )
    return type(a) is type(b) and bool(a == b)


def array(dtype: type, *shape: int) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    return hnp.arrays(dtype, shape)


@st.composite
def tables(draw: st.DrawFn) -> ConfigurationTable:
    demand = st.tuples(st.integers(0, 8), st.integers(0, 8))
    speed = st.floats(0, 1e9)
    configuration = st.builds(
        Configuration,
        demand=demand,
        throughput=speed,
        doubt=st.floats(0.0, math.inf),
        locality=st.sampled_from([ANYWHERE, CONSOLIDATED]),
        plan=st.text(max_size=4),
    )
    profile = st.builds(
        Profile,
        job_type=NAMES,
        scale_factor=st.integers(1, 64),
        configurations=st.lists(configuration, max_size=3).map(tuple),
    )
    profiles = tuple(draw(st.lists(profile, min_size=1, max_size=3)))
    pair = st.builds(
        PairConfiguration,
        profiles=st.just((0, len(profiles) - 1)),
        demand=demand,
        throughput=st.tuples(speed, speed),
    )
    return ConfigurationTable.build(("v100", "k80"), profiles, tuple(draw(st.lists(pair))[:2]))


JOBS = st.builds(
    Job,
    job_id=NAMES,
    job_type=NAMES,
    total_steps=st.floats(1e-300, 1e300),
    scale_factor=st.integers(1, 4096),
    arrival_s=st.floats(0, 1e12),
    weight=st.floats(1e-9, 1e9),
    deadline_s=st.none() | st.floats(allow_nan=False),
    entity=st.text(max_size=5),
    restarts=st.dictionaries(NAMES, st.floats(0, 1e9), max_size=3).map(MappingProxyType),
)
CAUSES = st.builds(
    Cause,
    fact=st.sampled_from(FactKind),
    subject=NAMES,
    round_number=COUNTS,
    ground=st.none() | st.sampled_from(Ground),
    lag_s=st.none() | NUMBERS,
)
LEASES = st.builds(
    Lease,
    lease_id=COUNTS,
    attempt=COUNTS,
    job_number=COUNTS,
    job_id=NAMES,
    profile=COUNTS,
    configuration=st.integers(-1, 9),
    workers=st.lists(COUNTS, max_size=4).map(tuple),
    token=COUNTS,
    start_s=NUMBERS,
    deadline_s=NUMBERS,
)


@st.composite
def allocations(draw: st.DrawFn) -> Allocation:
    n, j, q = draw(SIZES), draw(SIZES), draw(SIZES)
    return Allocation(
        x=draw(array(np.float64, n, j)),
        pair_jobs=draw(array(np.int64, q, 2)),
        pair_index=draw(array(np.int64, q)),
        pair_x=draw(array(np.float64, q)),
        rank=draw(st.none() | array(np.float64, n)),
        objective=draw(NUMBERS),
        solver=draw(st.text(max_size=4)),
        warnings=tuple(draw(st.lists(st.text(max_size=4), max_size=2))),
    )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n, k = draw(SIZES), draw(SIZES)
    shapes: dict[str, tuple[type, int]] = {
        **dict.fromkeys(("capacity", "cost_usd_per_hour"), (np.float64, k)),
        **dict.fromkeys(("job_number", "profile", "scale_factor", "entity", "held"), (np.int64, n)),
        **dict.fromkeys(
            ("weight", "total_steps", "remaining_steps", "age_s", "time_left_s"), (np.float64, n)
        ),
        **dict.fromkeys(("attained_worker_s", "restart_s"), (np.float64, n)),
    }
    arrays = {name: draw(array(dtype, size)) for name, (dtype, size) in shapes.items()}
    entities = (Entity(name="a", weight=draw(st.floats(0.1, 9)), policy="fifo"),)
    return Problem(now_s=draw(NUMBERS), table=draw(tables()), entities=entities, **arrays)


WORKERS = st.lists(COUNTS, max_size=4).map(tuple)


def causes(n: int) -> st.SearchStrategy[tuple[Cause, ...]]:
    return st.lists(CAUSES, min_size=n, max_size=n).map(tuple)


def columns(n: int) -> st.SearchStrategy[Leases]:
    """Return n leases as columns."""
    return st.builds(
        Leases,
        first_id=COUNTS,
        attempt=array(np.int64, n),
        job_number=array(np.int64, n),
        job_ids=st.lists(NAMES, min_size=n, max_size=n).map(tuple),
        profile=array(np.int64, n),
        configuration=array(np.int64, n),
        workers=st.lists(WORKERS, min_size=n, max_size=n).map(tuple),
        start_s=NUMBERS,
        deadline_s=NUMBERS,
    )


def of_job(kind: type) -> st.SearchStrategy[Any]:
    return st.builds(kind, job_id=NAMES)


NODES = st.builds(Node, name=NAMES, workers=st.lists(NAMES, max_size=3).map(tuple))
TYPES = st.builds(WorkerType, name=NAMES, cost_usd_per_hour=st.floats(0, 1e6))
SCALARS = st.one_of(NUMBERS, st.integers(), st.text(max_size=5))
VALUES: dict[type, st.SearchStrategy[Any]] = {
    ev.ConfigurationsChanged: st.builds(ev.ConfigurationsChanged, table=tables()),
    ev.JobSubmitted: st.builds(ev.JobSubmitted, job=JOBS, profile=COUNTS),
    ev.JobCancelled: of_job(ev.JobCancelled),
    ev.JobHeld: of_job(ev.JobHeld),
    ev.JobReleased: of_job(ev.JobReleased),
    ev.JobDeferred: st.builds(
        ev.JobDeferred, job_id=NAMES, until_s=NUMBERS | st.just(float("inf"))
    ),
    ev.WeightChanged: st.builds(ev.WeightChanged, job_id=NAMES, weight=NUMBERS),
    ev.DeadlineChanged: st.builds(ev.DeadlineChanged, job_id=NAMES, deadline_s=st.none() | NUMBERS),
    ev.RestartsMeasured: SIZES.flatmap(
        lambda n: st.builds(
            ev.RestartsMeasured,
            job_ids=st.lists(NAMES, min_size=n, max_size=n).map(tuple),
            restart_s=array(np.float64, n),
            restarts=st.just(())
            | st.lists(st.dictionaries(NAMES, NUMBERS, max_size=2), min_size=n, max_size=n).map(
                tuple
            ),
        )
    ),
    ev.LengthsRevised: SIZES.flatmap(
        lambda n: st.builds(
            ev.LengthsRevised,
            job_ids=st.lists(NAMES, min_size=n, max_size=n).map(tuple),
            total_steps=array(np.float64, n),
        )
    ),
    ev.JobRequeued: of_job(ev.JobRequeued),
    ev.FundsChanged: st.builds(
        ev.FundsChanged, job_ids=st.lists(NAMES, max_size=3).map(tuple), unfunded=st.booleans()
    ),
    ev.EntityChanged: st.builds(
        ev.EntityChanged,
        entity=st.builds(Entity, name=NAMES, weight=st.floats(0.1, 9), policy=st.just("fifo")),
    ),
    ev.QuotasChanged: st.builds(
        ev.QuotasChanged,
        quotas=st.lists(
            st.builds(
                Quota,
                project=NAMES,
                limit=st.integers(0, 99),
                worker_type=NAMES,
                idle=st.sampled_from(IdleQuota),
            )
        ).map(tuple),
        project=NAMES,
        owners=st.dictionaries(NAMES, st.tuples(NAMES, NAMES)),
    ),
    ev.ReservationsChanged: st.builds(
        ev.ReservationsChanged,
        reservations=st.lists(
            st.builds(
                Reservation,
                name=NAMES,
                worker_type=NAMES,
                workers=st.integers(1, 99),
                from_s=st.floats(0, 1e9),
                until_s=st.floats(2e9, 3e9),
                project=NAMES,
            )
        ).map(tuple),
        name=NAMES,
        members=st.dictionaries(NAMES, st.lists(NAMES, max_size=3).map(tuple)),
    ),
    ev.JobEntitled: st.builds(
        ev.JobEntitled, job_id=NAMES, reservations=st.lists(NAMES, max_size=3).map(tuple)
    ),
    ev.PolicyChanged: st.builds(
        ev.PolicyChanged, policy=NAMES, time_dependent=st.booleans(), record=st.booleans()
    ),
    ev.NodesJoined: st.builds(
        ev.NodesJoined, nodes=st.lists(NODES).map(tuple), worker_types=st.lists(TYPES).map(tuple)
    ),
    ev.WorkersRetired: st.builds(ev.WorkersRetired, workers=WORKERS),
    ev.WorkersDrained: st.builds(ev.WorkersDrained, workers=WORKERS, by_s=NUMBERS),
    ev.WorkersCordoned: st.builds(ev.WorkersCordoned, workers=WORKERS),
    ev.WorkersLost: st.builds(ev.WorkersLost, workers=WORKERS),
    ev.WorkersReturned: st.builds(ev.WorkersReturned, workers=WORKERS),
    ev.ProgressReported: SIZES.flatmap(
        lambda n: st.builds(
            ev.ProgressReported, lease_ids=array(np.int64, n), steps_done=array(np.float64, n)
        )
    ),
    ev.AgentDied: st.builds(
        ev.AgentDied, node=NAMES, job_ids=st.lists(NAMES, max_size=3).map(tuple)
    ),
    ev.LeaseEnded: st.builds(
        ev.LeaseEnded,
        lease_id=COUNTS,
        reason=st.sampled_from(EndReason),
        steps_done=NUMBERS,
        ran_s=st.none() | NUMBERS,
        left=st.booleans(),
    ),
    ev.LeasesReleased: SIZES.flatmap(
        lambda n: st.builds(
            ev.LeasesReleased, lease_ids=array(np.int64, n), steps_done=array(np.float64, n)
        )
    ),
    ev.TimerFired: st.builds(ev.TimerFired, timer=NAMES),
    ev.AllocationComputed: st.builds(
        ev.AllocationComputed,
        generation=COUNTS,
        job_number=array(np.int64, 3),
        allocation=allocations(),
    ),
    ev.LeasesSkipped: st.builds(ev.LeasesSkipped, last=COUNTS),
    ev.WorkSaved: st.builds(ev.WorkSaved, lease_ids=array(np.int64, 3)),
    ev.AllocationFailed: st.builds(ev.AllocationFailed, generation=COUNTS, reason=NAMES),
    do.ComputeAllocation: st.builds(
        do.ComputeAllocation, generation=COUNTS, problem=problems(), cause=CAUSES
    ),
    do.GrantLease: st.builds(do.GrantLease, lease=LEASES, cause=CAUSES),
    do.ExtendLeases: st.builds(
        do.ExtendLeases, lease_ids=array(np.int64, 4), deadline_s=NUMBERS, cause=CAUSES
    ),
    do.RevokeLease: st.builds(
        do.RevokeLease, lease_id=COUNTS, by_s=NUMBERS, reason=NAMES, cause=CAUSES
    ),
    do.GrantLeases: SIZES.flatmap(
        lambda n: st.builds(do.GrantLeases, leases=columns(n), causes=causes(n))
    ),
    do.RevokeLeases: st.builds(
        do.RevokeLeases,
        lease_ids=array(np.int64, 4),
        by_s=NUMBERS,
        reason=NAMES,
        causes=causes(4),
    ),
    do.HandOver: SIZES.flatmap(
        lambda n: st.builds(
            do.HandOver,
            ended=array(np.int64, n),
            job_ids=st.lists(NAMES, min_size=n, max_size=n).map(tuple),
            at_s=NUMBERS,
            leases=columns(n),
            waited_for=array(np.int64, n),
            causes=causes(n),
        )
    ),
    do.SetTimer: st.builds(do.SetTimer, timer=NAMES, at_s=NUMBERS, cause=CAUSES),
    do.RecordEvent: st.builds(
        do.RecordEvent,
        kind=NAMES,
        subject=NAMES,
        at_s=NUMBERS,
        cause=CAUSES,
        data=st.dictionaries(NAMES, SCALARS, max_size=3).map(MappingProxyType),
    ),
}


def through_json(value: object) -> Any:
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_an_event_or_command_survives_being_stored(kind: type) -> None:
    @given(value=VALUES[kind])
    def survives(value: Any) -> None:
        assert same(value, through_json(value))

    survives()


def test_every_event_and_command_is_tested_above() -> None:
    assert set(VALUES) == {
        *get_args(ev.Event),
        *get_args(do.Command),
        *get_args(do.Batch),
    }


def test_every_dataclass_and_enumeration_of_the_domain_can_be_stored() -> None:
    import importlib
    import pkgutil

    import scheduler.domain as package

    found = {
        value
        for info in pkgutil.walk_packages(package.__path__, "scheduler.domain.")
        if info.name.rpartition(".")[2] not in {"codec", *NOT_IN_THE_JOURNAL}
        for value in vars(importlib.import_module(info.name)).values()
        if isinstance(value, type)
        and value.__module__.startswith("scheduler.domain")
        and value.__module__.rpartition(".")[2] not in NOT_IN_THE_JOURNAL
        and (dataclasses.is_dataclass(value) or issubclass(value, enum.Enum))
    }
    assert found == set(DOMAIN_TYPES)


def test_a_cluster_and_a_throughput_table_survive_being_stored() -> None:
    cluster = parse_cluster_spec("v100:5,k80:2", prices={"v100": 2.5})
    again = through_json(cluster)
    assert again == cluster
    assert again.capacity.tolist() == [5, 2]
    keys = ("resnet", 1), ("bert", 2)
    table = ThroughputTable(
        isolated={keys[0]: {"v100": 3.0}, keys[1]: {"v100": math.inf}},
        shared={keys: {"v100": (1.0, 2.0)}},
    )
    assert through_json(table) == table


def test_infinite_and_undefined_numbers_are_written_as_text() -> None:
    data = encode(ev.WeightChanged(job_id="a", weight=-math.inf))
    assert data["weight"] == {"type": "float", "value": "-inf"}


def test_a_stored_event_reads_like_the_event() -> None:
    event = ev.LeaseEnded(lease_id=7, reason=EndReason.LOST, steps_done=1.5, ran_s=2.0)
    assert encode(event) == {
        "version": 1,
        "type": "LeaseEnded",
        "lease_id": 7,
        "reason": {"type": "EndReason", "value": "lost"},
        "steps_done": 1.5,
        "unstarted": [],
        "failed": [],
        "ran_s": 2.0,
        "left": False,
    }


def test_numpy_scalars_come_back_as_plain_numbers() -> None:
    event = ev.WeightChanged(job_id="a", weight=np.float64(2.5))
    assert type(through_json(event).weight) is float
    lease = ev.LeaseEnded(lease_id=np.int64(3), reason=EndReason.LOST, steps_done=0.0)  # type: ignore[arg-type]
    assert type(through_json(lease).lease_id) is int


def test_slices_transposed_and_foreign_endian_arrays_keep_their_values() -> None:
    for steps in (
        np.arange(20.0)[::2],
        np.arange(20.0).reshape(4, 5).T[0],
        np.arange(3).astype(">f8"),
        np.array(2.5),
    ):
        event = ev.ProgressReported(lease_ids=np.arange(3), steps_done=steps)
        again = through_json(event).steps_done
        assert again.tolist() == steps.tolist()
        assert again.dtype.isnative


def test_a_field_that_was_added_later_takes_its_default() -> None:
    data = encode(Job(job_id="a", job_type="t", total_steps=1.0))
    del data["restart_s"]
    assert decode(data).restart_s == 0.0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": VERSION + 1}, "version 2; this release reads 1 to 1"),
        ({"version": None}, "version None"),
        ({"version": True}, "version True"),
        ({"type": "JobEaten"}, "type 'JobEaten', which this release does not know"),
        ({"type": ["x"]}, "no text"),
        ({"colour": 1}, "field 'colour', which this release does not know"),
        ({"weight": {"type": "float", "value": "1"}}, "neither inf, -inf nor nan"),
        ({"weight": {"type": "array", "dtype": "O", "data": "", "shape": [0]}}, "object"),
        ({"weight": {"type": "array", "dtype": "<f8", "data": "!", "shape": [1]}}, "damaged"),
        ({"weight": {"type": "array"}}, "damaged"),
        ({"weight": {"type": "map", "items": [1]}}, "damaged"),
        ({"weight": {"type": "EndReason", "value": "bored"}}, "it knows completed"),
        ({"weight": {"type": "Entity", "name": "a", "weight": -1.0}}, "weight is -1.0"),
        ({"weight": {"no": "type"}}, "has no type"),
    ],
)
def test_damaged_and_newer_data_are_refused_by_name(change: Any, complaint: str) -> None:
    data = encode(ev.WeightChanged(job_id="a", weight=1.0))
    with pytest.raises(CodecError, match=complaint):
        decode(data | change)


def test_a_missing_field_and_a_non_mapping_are_refused() -> None:
    data = encode(ev.WeightChanged(job_id="a", weight=1.0))
    del data["job_id"]
    with pytest.raises(CodecError, match="lacks the field 'job_id'"):
        decode(data)
    with pytest.raises(CodecError, match="is no mapping"):
        decode([1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "weight", [object(), {1, 2}, 1j, np.array(["a"]), np.array([None]), np.datetime64("2020-01-01")]
)
def test_a_value_without_a_stored_form_is_refused(weight: Any) -> None:
    with pytest.raises(CodecError, match="no stored form"):
        encode(ev.WeightChanged(job_id="a", weight=weight))


def test_a_value_of_a_foreign_type_is_refused() -> None:
    with pytest.raises(CodecError, match="cannot be stored"):
        encode(3)
    with pytest.raises(CodecError, match="called 'Node'"):
        Codec((Node, Node))


def test_a_codec_may_know_further_types() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Note:
        text: str
        price: WorkerType

    codec = Codec((Note, WorkerType))
    note = Note(text="x", price=WorkerType(name="v100"))
    assert codec.decode(codec.encode(note)) == note
    with pytest.raises(CodecError, match="no stored form"):
        codec.encode(Note(text="x", price=Cluster))  # type: ignore[arg-type]


def test_ten_thousand_progress_entries_take_no_more_calls_than_ten(
    calls_of: Any,
) -> None:
    few, many = (
        ev.ProgressReported(lease_ids=np.arange(n), steps_done=np.arange(float(n)))
        for n in (10, 10_000)
    )
    decode(encode(few))  # the first time, more is to be done
    # 0.3 ms measured for the larger one.
    assert calls_of(lambda: decode(encode(many))) <= calls_of(lambda: decode(encode(few))) + 20


def test_a_stored_job_of_the_release_before_has_fields_that_are_ignored():
    job = Job(job_id="a", job_type="t", total_steps=1.0)
    given = encode(job) | {"labels": {"type": "map", "items": []}, "scale_factors": [1, 2]}
    given |= {"worker_types": [], "mixed_gangs": True}
    assert decode(given) == job
    with pytest.raises(CodecError, match="stored Job has the field 'size'"):
        decode(given | {"size": 1})
