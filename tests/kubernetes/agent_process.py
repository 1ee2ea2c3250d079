"""An agent of the tests: ``leasehold agent --backend kubernetes`` on an address of its node's own.

Takes one argument, JSON: node, address, port, server, state_dir, kubeconfig, and times. Settings of
the command line in a pod (its address, longer times) are set here, everything else is the same.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from agent.client_settings import ClientSettings
from agent.kubernetes.jobs_as_pods import PodJobs
from agent.kubernetes.pods.ends import StartBounds
from agent.kubernetes.pods.pods import PodSettings
from agent.link.http_link import LinkSettings
from agent.settings import AgentSettings
from leasehold.daemon.agent import AgentOptions, run_agent


async def main(given: dict[str, str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    options = AgentOptions(
        servers=(given["server"],),
        node=given["node"],
        worker_names={"Tesla-V100-SXM2-16GB": "v100", "Tesla-K80": "k80"},
        state_dir=Path(given["state_dir"]),
        enrolment_file=Path(given["identity"]),
        address=given["address"],
        backend=PodJobs(
            pods=PodSettings(
                namespace=given["namespace"],
                instance=given["instance"],
                endpoint_port=int(given["port"]),
                guard_image=given["guard_image"],
                code_image=given["code_image"],
                foreign_pods=given["foreign_pods"],
                pod_security="restricted",
            ),
            kubeconfig=Path(given["kubeconfig"]),
            listen=given["address"],
            bounds=StartBounds(
                bind_s=float(given["bind_s"]), trouble_s=float(given["start_most_s"])
            ),
            force_after_s=float(given["force_after_s"]),
            client=ClientSettings(
                request_s=5, connect_s=2, watch_s=int(given["watch_s"]), retry_most_s=2, slack_s=5
            ),
        ),
        settings=AgentSettings(report_every_s=1, progress_every_s=0.5, health_every_s=1),
        link=LinkSettings(wait_s=3),
    )
    await run_agent(options, stop=stop)


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(main(json.loads(sys.argv[1])))
