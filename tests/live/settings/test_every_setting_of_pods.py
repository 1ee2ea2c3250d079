"""A change of any setting of an agent's pods, or of the times of their start, has an effect."""

import functools
import socket
import tempfile
from pathlib import Path
from unittest import mock

import pytest

import agent.process.supervisor
from leasehold_testing.effects import Entry, check_effect, check_table, settings_of_agents
from leasehold_testing.packed_code import packed_code
from leasehold_testing.played_agent import ALONE, POD, PODS, fake_api, lease, played_agent
from leasehold_testing.ports import free_ports

V100 = "v100-sxm2-16gb"
#: In the place of the supervisor: as one that waits for a disk.
HANGS = "import time\ntime.sleep(600)\n"


def setting(key, first, second, observe, *, own="", told=None, **beside):
    """Return the entry of a setting with two values of it; ``beside`` are others, with ``__``.

    ``told`` is the rest of the entry, and ``own`` the rest of the key if the setting takes names.
    """
    given = {name.replace("__", "."): value for name, value in beside.items()}

    def shown(value):
        return observe(PODS | given | {f"{key}{own}": value})

    return key, Entry((first, second), shown, **told or {})


@functools.cache
def ports():
    """Return two ports on which nothing listens."""
    return free_ports(2)


# -- requests of the agent to Kubernetes -------------------------------------------------------


def on_cluster(story, *, clusters=(4,), prepare=lambda _: None):
    """Return an observation: the findings of a story of an agent of pods."""
    return functools.partial(played_agent, story, clusters=clusters, prepare=prepare)


def made(part, **fields):
    """Return an observation: a part of the pod that is made for a lease, or why there is none."""

    async def story(stage):
        stage.scheduler.want(lease(**fields))
        await stage.until(lambda: POD in stage.api.pods or stage.ended())
        return part(stage.api.pods[POD]) if POD in stage.api.pods else stage.ended().message

    return on_cluster(story)


def metadata(pod):
    return pod["metadata"]["namespace"], pod["metadata"]["labels"]["app.kubernetes.io/instance"]


def images(pod):
    """Return the images of a pod's containers, by their names."""
    spec = pod["spec"]
    return {c["name"]: c["image"] for c in (*spec.get("initContainers", ()), *spec["containers"])}


def variables(pod):
    return {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}


def endpoint(pod):
    return variables(pod).get("LEASEHOLD_ENDPOINT")


def volumes(pod):
    return pod["spec"]["volumes"]


def figures(pod):
    """Return the requests and limits of our own containers in a pod, by their names."""
    return {c["name"]: c["resources"] for c in pod["spec"]["initContainers"]}


def pull_secrets(pod):
    return pod["spec"].get("imagePullSecrets")


def runtime_class(pod):
    return pod["spec"].get("runtimeClassName")


def devices(pod):
    """Return how a pod gets its GPU: as a resource, or by its name."""
    limits = pod["spec"]["containers"][0]["resources"].get("limits")
    return limits, variables(pod).get("NVIDIA_VISIBLE_DEVICES")


async def workers(stage):
    """Return the workers as they are first reported."""
    return (await stage.report()).workers


async def listening(stage):
    """Return the ports of two on which pods reach the agent."""
    await stage.report()
    found = []
    for port in ports():
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                found.append(port)
    return found


async def tolerated(stage):
    """Return the workers of a node with a taint, and the taints that a pod there tolerates."""
    found = await workers(stage)
    return found, (await stage.pod())["spec"]["tolerations"]


def taint(api):
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    api.nodes["n1"]["spec"]["taints"] = taints


def occupy(api):
    """Let a pod of another program hold a GPU of the node."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    api.pods["other"] = {
        "metadata": {"name": "other", "namespace": "others", "uid": "u", "labels": {}},
        "spec": {"nodeName": "n1", "containers": [{"name": "x", "resources": limits}]},
        "status": {"phase": "Running"},
    }


# -- how long a launch may take ----------------------------------------------------------------


def given_up(befall):
    """Return an observation: after how many seconds a launch that hangs is given up.

    ``befall`` lets its pod come to a stop.
    """

    async def story(stage):
        await stage.pod()
        befall(stage.api)
        since_s = stage.now_s
        await stage.until(stage.ended)
        return stage.ended().reason_code, round(stage.now_s - since_s)

    return on_cluster(story, prepare=lambda api: setattr(api, "places", befall is not not_bound))


def not_bound(_api):
    """Let no node take the pod."""


def not_prepared(api):
    sandbox = {"type": "PodReadyToStartContainers", "status": "False"}
    api.status(POD, conditions=[fake_api.holds("PodScheduled"), sandbox])


def not_pulled(api):
    ready = [fake_api.holds("PodScheduled"), fake_api.holds("PodReadyToStartContainers")]
    api.status(POD, conditions=ready)


def not_reached(api):
    api.wait(POD, "ImagePullBackOff", "the registry does not answer")


def not_started(settings):
    """Return the report of a lease without started processes.

    Only the text shows the time, since the process that is ended takes the machine's time.
    """

    async def story(stage):
        stage.scheduler.want(lease())
        await stage.until(stage.ended)
        return stage.ended().message

    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "hangs.py")
        program.write_text(HANGS)
        step = {key: value for key, value in settings.items() if key.startswith("start_timeout")}
        with mock.patch.object(agent.process.supervisor, "__file__", str(program)):
            return played_agent(story, ALONE | step)


DIGEST, _ = packed_code()
CODE = {"kubernetes__code_image": "code:1", "kubernetes__jobs_port": ports()[0]}
PORT = {"kubernetes__jobs_port": ports()[0]}
VISIBLE = {f"kubernetes__sharing__{V100}": "visible"}
REFUSED = {"refused": True}
ENTRIES = dict(
    [
        setting("start_timeout.bind_s", 1, 3, given_up(not_bound)),
        setting("start_timeout.prepare_s", 1, 3, given_up(not_prepared)),
        setting("start_timeout.image_s", 1, 3, given_up(not_pulled)),
        setting("start_timeout.trouble_s", 1, 3, given_up(not_reached)),
        setting("start_timeout.process_s", 0.2, 0.4, not_started),
        setting("kubernetes.namespace", "one", "other", made(metadata)),
        setting("kubernetes.instance", "one", "other", made(metadata)),
        setting(
            "kubernetes.kubeconfig",
            "{folder}/first.kubeconfig",
            "{folder}/second.kubeconfig",
            on_cluster(workers, clusters=(4, 2)),
        ),
        setting("kubernetes.context", "first", "second", on_cluster(workers, clusters=(4, 2))),
        setting("kubernetes.jobs_port", *ports(), on_cluster(listening)),
        setting("kubernetes.jobs_host", "", "10.0.0.9", made(endpoint), **PORT),
        setting("kubernetes.guard_image", "", "guard:1", made(images), **PORT),
        setting("kubernetes.code_image", "", "code:1", made(images, upload=DIGEST), **PORT),
        setting(
            "kubernetes.guard_resources",
            [],
            ["limits.cpu=2"],
            made(figures),
            kubernetes__guard_image="guard:1",
            **PORT,
        ),
        setting(
            "kubernetes.code_resources", [], ["limits.cpu=2"], made(figures, upload=DIGEST), **CODE
        ),
        setting("kubernetes.code_volume_bytes", 2**20, 2**21, made(volumes, upload=DIGEST), **CODE),
        setting("kubernetes.default_image", "", "plain:1", made(images, image="")),
        setting("kubernetes.runtime_class", "nvidia", "other", made(runtime_class), **VISIBLE),
        setting("kubernetes.sharing", "exclusive", "visible", made(devices), own=f".{V100}"),
        setting("kubernetes.foreign_pods", "watch", "", on_cluster(workers, prepare=occupy)),
        setting("kubernetes.image_pull_secrets", [], ["registry"], made(pull_secrets)),
        setting("kubernetes.pod_security", "any", "restricted", made(metadata), told=REFUSED),
        setting(
            "kubernetes.tolerations",
            [],
            ["team=a:NoSchedule"],
            on_cluster(tolerated, prepare=taint),
        ),
    ]
)


def test_every_setting_has_an_entry():
    check_table(ENTRIES, settings_of_agents(pods=True))


@pytest.mark.parametrize("key", ENTRIES)
def test_a_setting_changes_the_pods_or_when_they_are_given_up(key):
    check_effect(key, ENTRIES[key])
