"""What goes wrong in a soak test, and when: drawn from the seed before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

#: Kind -> (how often, in relation to the others; shortest and longest duration in seconds).
SCHEDULER = {
    "kill": (3.0, 0.1, 5.0),  # SIGKILL; started again after the duration
    "freeze": (1.5, 0.5, 7.0),  # SIGSTOP, and SIGCONT: longer than the leadership lives
    "terminate": (0.7, 0.1, 2.0),  # SIGTERM: a planned restart
}
AGENT = {
    "kill": (3.0, 0.1, 9.0),
    "crash": (1.0, 0.1, 12.0),  # the agent, its supervisors and jobs: a node without power
    "freeze": (1.5, 0.5, 7.0),
    "terminate": (0.7, 0.1, 3.0),
}
NETWORK = {
    "cut": (2.5, 0.5, 12.0),  # both ways; longer than a lease lasts
    "deaf": (1.5, 0.5, 9.0),  # the agent hears nothing, but is heard
    "mute": (1.0, 0.5, 9.0),  # the agent is not heard
    "slow": (1.5, 2.0, 8.0),
    "reset": (1.5, 2.0, 8.0),
    "double": (1.5, 2.0, 10.0),
    "replay": (2.0, 0.0, 0.0),
}
DATABASE = {"restart": (1.0, 0.0, 0.0)}
OPERATOR = {
    "drain": (1.0, 2.0, 8.0),
    "cordon": (0.5, 2.0, 8.0),
    "drain unheard": (1.0, 5.0, 9.0),  # of a node that was just cut off
}

#: Mean time between two faults of a kind, in seconds, for the size that is soaked in full.
EVERY_S = {"scheduler": 10.0, "agent": 4.0, "network": 2.0, "database": 25.0, "operator": 12.0}
_KINDS = {
    "scheduler": SCHEDULER,
    "agent": AGENT,
    "network": NETWORK,
    "database": DATABASE,
    "operator": OPERATOR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        at_s: after the start.
        on: ``scheduler``, ``agent``, ``network``, ``database`` or ``operator``.
        kind: see the tables above.
        target: number of the scheduler, agent or node.
        for_s: until it is mended.
        strength: between 0 and 1; its meaning depends on the kind.
    """

    at_s: float
    on: str
    kind: str
    target: int
    for_s: float
    strength: float


def draw_faults(
    chance: random.Random, *, for_s: float, agents: int, schedulers: int, databases: int
) -> list[Fault]:
    """Draw the faults of a run; each is mended before ``for_s``.

    Args:
        chance: where every choice comes from.
        for_s: how long things go wrong.
        agents: how many there are; faults on them come in proportion.
        schedulers: how many there are.
        databases: 1 if the database can be restarted, else 0.
    """
    targets = {
        "scheduler": schedulers,
        "agent": agents,
        "network": agents,
        "database": databases,
        "operator": agents,
    }
    often = dict.fromkeys(("agent", "network", "operator"), max(agents / 8, 0.75))
    faults = []
    for on, kinds in _KINDS.items():
        if not targets[on]:
            continue
        every_s = EVERY_S[on] / often.get(on, 1.0)
        at_s = chance.expovariate(1 / every_s)
        while at_s < for_s:
            kind = chance.choices(list(kinds), [how[0] for how in kinds.values()])[0]
            _, least_s, most_s = kinds[kind]
            faults.append(
                Fault(
                    at_s=at_s,
                    on=on,
                    kind=kind,
                    target=chance.randrange(targets[on]),
                    for_s=min(chance.uniform(least_s, most_s), for_s - at_s),
                    strength=chance.random(),
                )
            )
            at_s += chance.expovariate(1 / every_s)
    return sorted(faults, key=lambda fault: fault.at_s)
