"""A change of any setting of an agent, its times or its log changes its actions or output."""

import asyncio
import contextlib
import functools
import json
import logging
import ssl
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest

import leasehold.cli.local.agent
from agent.process.node import ProcessJobs
from leasehold_testing.certificates import write_certificate, write_key
from leasehold_testing.effects import Entry, check_effect, check_table, settings_of_agents
from leasehold_testing.logged import logged
from leasehold_testing.played_agent import (
    ALONE,
    POD,
    PODS,
    agent_file,
    gap_s,
    lease,
    played_agent,
)
from leasehold_testing.ports import free_ports

PRODUCT = "Tesla-V100-SXM2-16GB"
PORT = free_ports(1)[0]


def setting(key, first, second, observe, *, own="", told=None, under=ALONE, **beside):
    """Return the entry of a setting with two values of it; ``beside`` are others, with ``__``.

    ``told`` is the rest of the entry, ``own`` the rest of the key if the setting takes names, and
    ``under`` the settings that all these are laid over.
    """
    given = {name.replace("__", "."): value for name, value in beside.items()}

    def shown(value):
        return observe(under | given | {f"{key}{own}": value})

    return key, Entry((first, second), shown, **told or {})


def seen(story, **how):
    """Return an observation: the findings of a story of an agent."""
    return functools.partial(played_agent, story, **how)


# -- messages to the scheduler -----------------------------------------------------------------


async def asked(stage):
    """Return the address and the words about itself with which the agent first reports."""
    await stage.report()
    (_, request), *_ = stage.scheduler.asked("/report")
    told = {name: request.headers.get(f"x-leasehold-{name}") for name in ("node", "address")}
    return str(request.url), told, request.headers.get("authorization")


async def node(stage):
    return (await stage.report()).node


async def types(stage):
    return [worker.worker_type for worker in (await stage.report()).workers]


async def enrolled(stage):
    """Return the secrets that the agent has exchanged for a token."""
    await stage.report()
    return [json.loads(request.content)["secret"] for _, request in stage.scheduler.asked("/enrol")]


async def kept(stage):
    """Return the folders in which the agent keeps something."""
    await stage.report()
    return sorted(path.parent.name for path in stage.folder.rglob("agent.json"))


def secrets(folder):
    """Write secrets to two files."""
    for name in ("one", "other"):
        (folder / name).write_text(f"lh_{name}\n")


def certificates(folder):
    """Write two certificates with their keys."""
    for name in ("one", "other"):
        write_certificate(folder / f"{name}.crt", write_key(folder / f"{name}.key"))


def trusting(settings):
    """Return whether the agent speaks to a server with the first of two certificates."""

    async def story(stage):
        context, spoken = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
        context.load_cert_chain(stage.folder / "one.crt", stage.folder / "one.key")

        async def answer(reader, writer):
            spoken.append(await reader.readline())
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", PORT, ssl=context):
            await stage.until(lambda: spoken or "CERTIFICATE_VERIFY_FAILED" in said.text)
        return bool(spoken)

    with heard() as said:
        return played_agent(story, settings, furnish=certificates, transport=False)


@contextlib.contextmanager
def heard():
    """Keep the agent's log, in ``text``."""
    said = SimpleNamespace(text="")
    handler = logging.Handler()
    handler.emit = lambda record: setattr(said, "text", f"{said.text}{record.getMessage()}\n")
    logger = logging.getLogger("leasehold.agent")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


# -- how often ---------------------------------------------------------------------------------


async def reports(stage):
    """Return the usual time between two reports without news."""
    await stage.until(lambda: len(stage.scheduler.reports) > 4)
    return gap_s([at_s for at_s, _ in stage.scheduler.reports[1:]])


async def polls(stage):
    """Return the usual time between two requests for news without news."""
    await stage.until(lambda: len(stage.scheduler.asked("/desired")) > 4)
    return gap_s([at_s for at_s, _ in stage.scheduler.asked("/desired")[1:]])


async def progress(stage):
    """Return the usual time between two reports of a job that makes steps."""
    pod = await stage.pod()
    stage.api.run(POD)
    told = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    _, writer = await asyncio.open_connection("127.0.0.1", PORT)
    for steps in range(1, 30):
        line = {"secret": told["LEASEHOLD_SECRET"], "steps_live": steps}
        writer.write(json.dumps(line).encode() + b"\n")
        await asyncio.sleep(0.5)
    writer.close()
    moved = {
        one.steps_live: at_s
        for at_s, report in reversed(stage.scheduler.reports)
        for one in report.leases
        if one.steps_live
    }
    return gap_s(sorted(moved.values()))


class Nvml(ModuleType):
    """NVML of one GPU, which may break."""

    NVMLError = OSError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(self):
        super().__init__("pynvml")
        self.broken = False
        self.nvmlInit = self.nvmlDeviceGetMinorNumber = lambda *_: 0
        self.nvmlDeviceGetCount = lambda: 1
        self.nvmlDeviceGetMigMode = lambda _gpu: (0, 0)
        self.nvmlDeviceGetName = lambda _gpu: PRODUCT
        self.nvmlDeviceGetHandleByIndex = self.nvmlDeviceGetUUID = lambda _gpu: "GPU-0"
        self.nvmlDeviceGetMemoryInfo = lambda _gpu: SimpleNamespace(total=1, used=0)
        self.nvmlDeviceGetTotalEccErrors = lambda *_: 0

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802 - the name in NVML
        if self.broken:
            raise self.NVMLError("the GPU is lost")
        return uuid


def on_gpus(observe):
    """Return an observation of an agent that finds its GPUs by NVML."""

    def shown(settings):
        nvml = Nvml()
        with mock.patch.dict(sys.modules, {"pynvml": nvml}):
            return played_agent(functools.partial(observe, nvml), settings)

    return shown


async def found(_nvml, stage):
    return await types(stage)


async def broken(nvml, stage):
    """Return after how many seconds it is reported that a GPU has broken."""
    await stage.report()
    nvml.broken, since_s = True, stage.now_s
    await stage.until(lambda: stage.scheduler.reports[-1][1].workers[0].problem)
    return round(stage.scheduler.reports[-1][0] - since_s)


# -- what runs the jobs ------------------------------------------------------------------------


async def left_over(stage):
    """Return the pods that are left when the agent has been stopped."""
    await stage.pod()
    stage.api.run(POD)
    await stage.until(lambda: (one := stage.scheduler.of_lease()) and one.state == "running")
    stage.stop.set()
    await stage.task
    return sorted(stage.api.pods)


@dataclass(frozen=True, kw_only=True)
class Typed(ProcessJobs):
    """The backend of a plugin; its options name the type of its worker."""

    worker_type: str

    @contextlib.asynccontextmanager
    async def open(self, setup):
        async with super().open(replace(setup, workers=(f"{self.worker_type}:1",))) as jobs:
            yield jobs


def typed(config, _environment):
    return Typed(worker_type=config.backend_options["worker_type"])


def plugged(settings):
    """Return the workers of an agent with the backend of a plugin."""
    plugin = EntryPoint(name="typed", value="typed_backend:typed", group="leasehold.backends")
    vars(plugin)["dist"] = None
    with contextlib.ExitStack() as stack:
        for module in ("backends", "backend_names"):
            name = f"leasehold.config.{module}.entry_points"
            stack.enter_context(mock.patch(name, return_value=[plugin]))
        stack.enter_context(
            mock.patch.dict(sys.modules, {"typed_backend": SimpleNamespace(typed=typed)})
        )
        return played_agent(types, settings)


def launched(settings):
    """Return how the agent keeps a job apart: command, groups, namespaces; None if not at all.

    The machine is assumed to support that, which needs root and bubblewrap. A
    program that ends at once takes the place of the one that would start the job.
    """

    async def story(stage):
        stage.scheduler.want(lease(uid=1_900_000_000, owner="ann", project="p"))
        await stage.until(stage.ended)
        launch = json.loads((stage.folder / "state/leases/1/launch.json").read_text())
        cell = launch.get("cell")
        if cell is None:
            return None
        command = [part for part in cell["command"] if "/lh-" not in part]
        return command, cell["groups"], cell["namespaces"]

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        program = Path(folder, "ends.py")
        program.touch()
        confinement = "agent.process.cells.confinement"
        for name, value in (
            (f"{confinement}._obstacle", str),
            (f"{confinement}.shutil.which", "/usr/bin/{}".format),
            (f"{confinement}.os.setgroups", list),
            (f"{confinement}.os.chown", lambda *_: None),
            ("agent.process.supervisor.__file__", str(program)),
        ):
            stack.enter_context(mock.patch(name, value))
        return played_agent(story, settings)


# -- the log -----------------------------------------------------------------------------------


def lines(settings):
    """Return the lines that the command logs, for two messages."""

    async def run_agent(_options, *, stop, stalls):
        logging.getLogger("leasehold.agent").info("a line")
        logging.getLogger("leasehold.agent").error("a problem")

    with (
        tempfile.TemporaryDirectory(prefix="lh-") as folder,
        mock.patch.object(leasehold.cli.local.agent, "run_agent", run_agent),
    ):
        file = agent_file(Path(folder), settings)
        return logged(lambda: leasehold.cli.local.agent.agent(config=str(file)))


FAR = {"times__report_every_s": 600.0}
TLS = {"servers": [f"https://127.0.0.1:{PORT}"]}
NVML = {"workers": []}
APART = {"isolation": "required"}
ENTRIES = dict(
    [
        setting("servers", ["http://127.0.0.1:1"], ["http://127.0.0.1:2"], seen(asked)),
        setting("node", "n1", "n2", seen(node)),
        setting("workers", ["v100:2"], ["k80:1"], seen(types)),
        setting("worker_names", "big", "small", on_gpus(found), own=f".{PRODUCT}", **NVML),
        setting("state_dir", "{folder}/a", "{folder}/b", seen(kept)),
        setting("token_file", "{folder}/one", "{folder}/other", seen(asked, furnish=secrets)),
        setting("enrol_file", "{folder}/one", "{folder}/other", seen(enrolled, furnish=secrets)),
        setting("ca_file", "{folder}/one.crt", "{folder}/other.crt", trusting, **TLS),
        setting("address", "10.0.0.1", "10.0.0.2", seen(asked)),
        setting("backend", "process", "kubernetes", seen(types, clusters=(4,)), under=ALONE | PODS),
        setting("backend_options", "v100", "k80", plugged, own=".worker_type", backend="typed"),
        setting("isolation", "off", "auto", launched),
        setting("job_devices", ["/dev/one"], ["/dev/other"], launched, **APART),
        setting("job_groups", ["7"], ["8"], launched, **APART),
        setting("job_namespaces", False, True, launched, **APART),
        setting("stop_jobs", False, True, seen(left_over, clusters=(4,)), under=PODS),
        setting("times.report_every_s", 2.0, 7.0, seen(reports)),
        setting(
            "times.progress_every_s",
            1.0,
            3.0,
            seen(progress, clusters=(4,)),
            under=PODS | {"kubernetes.jobs_port": PORT},
            **FAR,
        ),
        setting("times.health_every_s", 2.0, 7.0, on_gpus(broken), **NVML),
        setting("times.poll_wait_s", 2.0, 7.0, seen(polls)),
        setting("log.level", "info", "error", lines),
        setting("log.json", False, True, lines),
    ]
)


def test_every_setting_has_an_entry():
    check_table(ENTRIES, settings_of_agents(pods=False))


@pytest.mark.parametrize("key", ENTRIES)
def test_a_setting_changes_what_the_agent_does(key):
    check_effect(key, ENTRIES[key])
