"""Orders of operators during a replay of the service: a YAML file, a list of orders by time.

Reference: docs/reference/overheads-and-failures.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from policies.registry import make_policy
from scheduler.control.facts.facts import (
    JobActionAsked,
    JobChangeAsked,
    NodeOrdered,
    PolicySet,
    ProjectSet,
    ReservationDeleted,
    ReservationMade,
)
from scheduler.control.facts.requests import JobAction, NodeAction, PolicyChoice
from scheduler.domain.reservation import Reservation
from scheduler.errors import InputError, LeaseholdError
from simulator.world.projects import LIMITS, limits_of
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from scheduler.control.facts.facts import Fact

#: The actor of the orders of a file.
ACTOR = "orders"
_NODE_ACTIONS = {action.value: action for action in NodeAction}
_JOB_ACTIONS = {action.value: action for action in JobAction}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    jobs: Collection[str]
    nodes: Collection[str]


def read_orders(
    path: str, *, jobs: Collection[str], nodes: Collection[str]
) -> tuple[tuple[float, Fact], ...]:
    """Read a list of orders.

    Args:
        path: the file.
        jobs: ids of the jobs of the trace.
        nodes: names of the nodes of the cluster.

    Returns:
        (seconds from the start, order), in the order of the file.

    Raises:
        InputError: the file cannot be read, or an order cannot be used; names the entry, its field
            and the value.
    """
    try:
        document = read_yaml(path)
    except InputError as error:
        raise InputError(f"orders file {error}") from error
    if not isinstance(document, list):
        raise InputError(f"orders file '{path}': give a list of orders, each with at_s")
    found = []
    for i, entry in enumerate(document, start=1):
        try:
            found.append(_order(entry, _Names(jobs=jobs, nodes=nodes)))
        except LeaseholdError as error:
            raise InputError(f"orders file '{path}', order {i}: {error}") from error
    return tuple(found)


def _order(entry: Any, names: _Names) -> tuple[float, Fact]:
    if not isinstance(entry, dict):
        raise InputError(f"it is {entry!r}; give a mapping with at_s and one of {_verbs()}")
    verbs = [key for key in entry if key in _ORDERS]
    if "reserve" in verbs:
        verbs = [key for key in verbs if key not in _ORDERS["reserve"][1]]  # keys that belong to it
    if len(verbs) != 1:
        raise InputError(f"give one of {_verbs()}; it has {', '.join(verbs) or 'none of them'}")
    (verb,) = verbs
    make, options = _ORDERS[verb]
    for key in entry:
        if key not in {"at_s", verb, *options}:
            known = ", ".join(("at_s", verb, *options))
            raise InputError(f"unknown key '{key}'; known beside '{verb}' are {known}")
    if "at_s" not in entry:
        raise InputError("'at_s' is missing; give the seconds from the start of the replay")
    at_s = _number(entry, "at_s", least=0.0)
    return at_s, make(verb, entry, names)


def _verbs() -> str:
    return ", ".join(_ORDERS)


def _number(entry: Mapping[str, Any], key: str, *, least: float) -> float:
    value = entry[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value >= least):
        raise InputError(f"'{key}' is {value!r}; it must be a number >= {least:g}")
    return float(value)


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise InputError(f"'{key}' is {value!r}; it must be a text")
    return value


def _flag(entry: Mapping[str, Any], key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"'{key}' is {value!r}; it must be true or false")
    return value


def _known(key: str, value: Any, known: Collection[str], where: str) -> str:
    name = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if name is None or name not in known:
        raise InputError(f"'{key}' is {value!r}; there is none of that name in the {where}")
    return name


def _jobs(verb: str, entry: Mapping[str, Any], names: _Names) -> tuple[str, ...]:
    given = entry[verb] if isinstance(entry[verb], list) else [entry[verb]]
    return tuple(_known(verb, one, names.jobs, "trace") for one in given)


def _set_policy(verb: str, entry: Mapping[str, Any], _names: _Names) -> Fact:
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InputError(f"'parameters' is {parameters!r}; give a mapping of names to values")
    choice = PolicyChoice(
        name=_text(entry, verb),
        parameters={str(key): str(value) for key, value in parameters.items()},
        agnostic=_flag(entry, "agnostic"),
        space_sharing=_flag(entry, "space_sharing"),
    )
    policy = make_policy(choice.name, choice.parameters)
    return PolicySet(choice=choice, time_dependent=policy.time_dependent, actor=ACTOR)


def _order_node(verb: str, entry: Mapping[str, Any], names: _Names) -> Fact:
    return NodeOrdered(
        node=_known(verb, entry[verb], names.nodes, "cluster"),
        action=_NODE_ACTIONS[verb],
        actor=ACTOR,
        reason=_text(entry, "reason"),
    )


def _act(verb: str, entry: Mapping[str, Any], names: _Names) -> Fact:
    return JobActionAsked(
        job_ids=_jobs(verb, entry, names),
        action=_JOB_ACTIONS[verb],
        actor=ACTOR,
        reason=_text(entry, "reason"),
    )


def _change(verb: str, entry: Mapping[str, Any], names: _Names) -> Fact:
    job_ids = _jobs(verb, entry, names)
    if not {"weight", "deadline_s"} & entry.keys():
        raise InputError("give 'weight', 'deadline_s' or both: what is set")
    if "weight" in entry and not _number(entry, "weight", least=0.0) > 0.0:
        raise InputError(f"'weight' is {entry['weight']!r}; it must be > 0")
    given = entry.get("deadline_s")
    return JobChangeAsked(
        job_ids=job_ids,
        actor=ACTOR,
        weight=_number(entry, "weight", least=0.0) if "weight" in entry else None,
        deadline_s=None if given is None else _number(entry, "deadline_s", least=0.0),
        clear_deadline="deadline_s" in entry and given is None,
    )


def _set_project(verb: str, entry: Mapping[str, Any], _names: _Names) -> Fact:
    limits = {key: value for key, value in entry.items() if key not in {"at_s", verb}}
    return ProjectSet(limits=limits_of(_text(entry, verb), limits), actor=ACTOR)


def _reservation(verb: str, entry: Mapping[str, Any]) -> str:
    name = _text(entry, verb)
    if not name:
        raise InputError(f"'{verb}' is ''; give a name")
    return name


def _reserve(verb: str, entry: Mapping[str, Any], names: _Names) -> Fact:
    name = _reservation(verb, entry)
    job = _known("job", entry["job"], names.jobs, "trace") if entry.get("job") else ""
    for key in ("worker_type", "workers", "from_s", "until_s"):
        if key not in entry:
            raise InputError(f"'{key}' is missing beside '{verb}'")
    workers = _number(entry, "workers", least=1.0)
    if not workers.is_integer():
        raise InputError(f"'workers' is {entry['workers']!r}; it must be a whole number")
    rule = Reservation(
        name=name,
        worker_type=_text(entry, "worker_type"),
        workers=int(workers),
        from_s=_number(entry, "from_s", least=0.0),
        until_s=_number(entry, "until_s", least=0.0),
        project=_text(entry, "project"),
        user=_text(entry, "user"),
        job=job,
    )
    return ReservationMade(reservation=rule, actor=ACTOR)


def _unreserve(verb: str, entry: Mapping[str, Any], _names: _Names) -> Fact:
    return ReservationDeleted(name=_reservation(verb, entry), actor=ACTOR)


#: Order -> function that makes a fact of it, and its optional keys.
_ORDERS: Mapping[str, tuple[Callable[[str, Mapping[str, Any], _Names], Fact], tuple[str, ...]]] = {
    "policy": (_set_policy, ("parameters", "agnostic", "space_sharing")),
    **dict.fromkeys(_NODE_ACTIONS, (_order_node, ("reason",))),
    **dict.fromkeys(_JOB_ACTIONS, (_act, ("reason",))),
    "set": (_change, ("weight", "deadline_s")),
    "reserve": (
        _reserve,
        ("worker_type", "workers", "from_s", "until_s", "project", "user", "job"),
    ),
    "unreserve": (_unreserve, ()),
    "project": (_set_project, LIMITS),
}
