"""The built-in backends of an agent, built from its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.process.node import ProcessJobs
from leasehold.config.agent_settings import read_toleration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kubernetes.jobs_as_pods import PodJobs
    from leasehold.config.agent_settings import AgentConfig


def processes(config: AgentConfig, _environment: Mapping[str, str]) -> ProcessJobs:
    """Return the backend that runs jobs as local processes."""
    return ProcessJobs(
        isolation=config.isolation,
        devices=config.job_devices,
        groups=config.job_groups,
        namespaces=config.job_namespaces,
    )


def pods(config: AgentConfig, environment: Mapping[str, str]) -> PodJobs:
    """Return the backend that runs jobs as pods of this node.

    Args:
        config: of the agent.
        environment: of the agent's own pod, with its node's name and address.
    """
    from agent.kubernetes.jobs_as_pods import PodJobs  # noqa: PLC0415 - not needed for local processes
    from agent.kubernetes.pods.ends import StartBounds  # noqa: PLC0415 - as above
    from agent.kubernetes.pods.pods import PodSettings  # noqa: PLC0415 - as above

    told, times = config.kubernetes, config.start_timeout
    return PodJobs(
        node=environment.get("NODE_NAME", ""),
        address=environment.get("HOST_IP", ""),
        pods=PodSettings(
            namespace=told.namespace,
            instance=told.instance,
            default_image=told.default_image,
            endpoint_port=told.jobs_port,
            endpoint_host=told.jobs_host,
            guard_image=told.guard_image,
            code_image=told.code_image,
            guard_resources=dict(text.split("=", 1) for text in told.guard_resources),
            code_resources=dict(text.split("=", 1) for text in told.code_resources),
            code_volume_bytes=told.code_volume_bytes,
            tolerations=(*PodSettings().tolerations, *map(read_toleration, told.tolerations)),
            runtime_class=told.runtime_class,
            foreign_pods=told.foreign_pods,
            pod_security=told.pod_security,
            image_pull_secrets=told.image_pull_secrets,
        ),
        kubeconfig=None if told.kubeconfig is None else Path(told.kubeconfig).expanduser(),
        context=told.context,
        sharing=told.sharing,
        bounds=StartBounds(
            bind_s=times.bind_s,
            prepare_s=times.prepare_s,
            image_s=times.image_s,
            trouble_s=times.trouble_s,
        ),
    )
