"""From the configuration to a replay of the service that it configures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.config.decisions import control_settings
from leasehold.config.load import load_config
from simulator.request import Service
from simulator.world.projects import read_projects

if TYPE_CHECKING:
    import os


def read_service(
    path: str | os.PathLike[str],
    *,
    projects: str | os.PathLike[str] | None = None,
    orders: str | os.PathLike[str] | None = None,
) -> Service:
    """Read what a service decides by, as ``leasehold simulate --config`` does.

    The file and the defaults count; environment variables do not.

    Args:
        path: the daemon's configuration, ``leasehold.toml``.
        projects: a YAML file with limits of projects; None for none.
        orders: a YAML file with what people order at which times; None for none.

    Returns:
        What ``simulator.api.simulate`` takes as ``service``.

    Raises:
        ConfigError: lists every problem of the configuration.
        InputError: the file of projects cannot be read, or has a bad value.
    """
    loaded = load_config(path=str(path), environment={}, elsewhere=True).config
    return Service(
        settings=control_settings(loaded),
        profile=Path(path).name,
        declared=loaded.throughputs.path,
        sources=loaded.throughputs.sources,
        hardware=loaded.throughputs.hardware,
        projects=() if projects is None else read_projects(str(projects)),
        orders=None if orders is None else str(orders),
    )
