"""An agent that runs jobs as local processes on declared workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.backend import NodeSetup
from agent.gpus.inventory import declare_workers
from agent.loop import Agent
from agent.process.node import process_backend
from agent.settings import AgentSettings

if TYPE_CHECKING:
    from pathlib import Path

    from agent.link.port import Link
    from agent.process.cells.confinement import Confinement
    from agent.process.control_groups import ControlGroups


def local_agent(
    *,
    node: str,
    link: Link,
    workers: str,
    state_dir: Path,
    settings: AgentSettings | None = None,
    groups: ControlGroups | None = None,
    confinement: Confinement | None = None,
) -> Agent:
    """Return an agent of declared workers, such as ``v100:4``."""
    settings = settings or AgentSettings()
    inventory = declare_workers(workers)
    setup = NodeSetup(
        node=node,
        state_dir=state_dir,
        margin_s=settings.margin_s,
        start_most_s=settings.start_most_s,
    )
    return Agent(
        node=node,
        link=link,
        inventory=inventory,
        state_dir=state_dir,
        make_backend=process_backend(setup, inventory, groups=groups, confinement=confinement),
        settings=settings,
    )
