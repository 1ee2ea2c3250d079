"""From an agent's configuration to the options that it runs with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.http_link import LinkSettings
from agent.kubernetes.pod_ends import StartBounds
from agent.kubernetes.pods import PodSettings
from agent.loop import AgentSettings
from leasehold.config.agent_settings import read_toleration
from leasehold.daemon.agent import (
    ENROLMENT_VARIABLE,
    TOKEN_VARIABLE,
    AgentOptions,
    KubernetesOptions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.config.agent_settings import AgentConfig

#: The node's workers are looked up in memory there, so often at least.
_HEALTH_OF_PODS_S = 5.0


def options_of(config: AgentConfig, environment: Mapping[str, str]) -> AgentOptions:
    """Return the options that a configuration means.

    Args:
        config: of the agent.
        environment: may hold its token or a secret; of a pod, its node's name and address.
    """
    node, address = config.node, config.address
    health_every_s, kubernetes = config.times.health_every_s, None
    if config.backend == "kubernetes":
        kubernetes = _of_pods(config)
        health_every_s = min(health_every_s, _HEALTH_OF_PODS_S)
        node = node or environment.get("NODE_NAME", "")
        address = address or environment.get("HOST_IP", "")
    return AgentOptions(
        servers=config.servers,
        node=node,
        workers=config.workers,
        worker_names=config.worker_names,
        state_dir=_path(config.state_dir),
        token=environment.get(TOKEN_VARIABLE, "").strip(),
        token_file=_path(config.token_file),
        enrolment=environment.get(ENROLMENT_VARIABLE, "").strip(),
        enrolment_file=_path(config.enrol_file),
        ca_file=_path(config.ca_file),
        address=address,
        kubernetes=kubernetes,
        stop_jobs=config.stop_jobs,
        settings=AgentSettings(
            report_every_s=config.times.report_every_s,
            progress_every_s=config.times.progress_every_s,
            health_every_s=health_every_s,
            start_most_s=config.start_timeout.process_s,
        ),
        link=LinkSettings(wait_s=config.times.poll_wait_s),
    )


def _of_pods(config: AgentConfig) -> KubernetesOptions:
    pods, times = config.kubernetes, config.start_timeout
    usual = PodSettings()
    return KubernetesOptions(
        pods=PodSettings(
            namespace=pods.namespace,
            instance=pods.instance,
            default_image=pods.default_image,
            endpoint_port=pods.jobs_port,
            endpoint_host=pods.jobs_host,
            guard_image=pods.guard_image,
            tolerations=(*usual.tolerations, *map(read_toleration, pods.tolerations)),
            runtime_class=pods.runtime_class,
        ),
        kubeconfig=_path(pods.kubeconfig),
        context=pods.context,
        sharing=pods.sharing,
        bounds=StartBounds(
            bind_s=times.bind_s,
            prepare_s=times.prepare_s,
            image_s=times.image_s,
            trouble_s=times.trouble_s,
        ),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()
