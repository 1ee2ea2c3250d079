"""Options of the commands that run several simulations."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Policies: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--policies",
        metavar="A,B,C",
        help="Policies; each may carry parameters and options: "
        "fifo,max_min_fairness+packed,alpha_fairness:alpha=2+agnostic. Repeatable.",
    ),
]
Agnostic: TypeAlias = Annotated[
    bool, typer.Option("--agnostic", help="Hide from every policy that worker types differ.")
]
SpaceSharing: TypeAlias = Annotated[
    bool, typer.Option("--space-sharing", help="Let two jobs share workers, under every policy.")
]
Processes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--processes",
        "-j",
        metavar="N",
        min=1,
        help="Simulations at the same time; as many as there are cores by default.",
    ),
]
