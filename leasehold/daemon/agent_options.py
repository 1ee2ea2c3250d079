"""Convert an agent's configuration to the options that it runs with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.link.http_link import LinkSettings
from agent.settings import AgentSettings, ReportSettings
from leasehold.config.backends import make_backend
from leasehold.daemon.agent import ENROLMENT_VARIABLE, TOKEN_VARIABLE, AgentOptions
from scheduler.operator_settings import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.config.agent_settings import AgentConfig


def options_of(config: AgentConfig, environment: Mapping[str, str]) -> AgentOptions:
    """Return the options of a configuration.

    Args:
        config: of the agent.
        environment: may hold the agent's token or a secret, and variables of its backend.

    Raises:
        InputError: the backend does not exist or cannot be used.
        MissingExtraError: a package that the backend needs is not installed.
    """
    backend = make_backend(config, environment)
    return AgentOptions(
        servers=config.servers,
        node=config.node or backend.node,
        workers=config.workers,
        worker_names=config.worker_names,
        state_dir=_path(config.state_dir),
        token=environment.get(TOKEN_VARIABLE, "").strip(),
        token_file=_path(config.token_file),
        enrolment=environment.get(ENROLMENT_VARIABLE, "").strip(),
        enrolment_file=_path(config.enrol_file),
        ca_file=_path(config.ca_file),
        address=config.address or backend.address,
        backend=backend,
        stop_jobs=config.stop_jobs,
        settings=AgentSettings(
            **values_of(config.times, ReportSettings)
            | {"health_every_s": min(config.times.health_every_s, backend.health_most_s)},
            start_most_s=config.start_timeout.process_s,
        ),
        link=LinkSettings(wait_s=config.times.poll_wait_s),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()
