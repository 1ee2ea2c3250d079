"""If a stored policy's plugin cannot be imported any more, it is reported; running jobs go on."""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace

from policies import registry
from policies.answering import PolicyAnswerer
from policies.built_in.fifo import Fifo
from scheduler.control.facts.requests import PolicyChoice

MINE = PolicyChoice(name="mine")


class Mine(Fifo):
    """First come, first served, from a package of its own."""

    name = "mine"


def test_a_stored_policy_that_does_not_import_is_said_aloud(live, monkeypatch, caplog):
    point = EntryPoint(name="mine", value="my_package:Mine", group=registry.GROUP)
    vars(point)["dist"] = SimpleNamespace(name="my-package")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    package = ModuleType("my_package")
    package.Mine = Mine
    monkeypatch.setitem(sys.modules, "my_package", package)

    async def story(stage):
        await stage.job("a", total_steps=100.0)
        await stage.do(stage.service.set_policy(MINE, actor="boss"))
        await stage.wait(3)
        assert stage.service.health().problems == ()
        assert b"leasehold_policy_failing 0.0" in stage.service.metrics()

        monkeypatch.delitem(sys.modules, "my_package")
        stage.solver._answerer = PolicyAnswerer()
        await stage.restart()
        why = "the plugin of policy 'mine' (my_package:Mine of my-package) cannot be used: "
        assert why in stage.service.policy().last_failure
        assert stage.service.policy().name == "mine"
        (problem,) = stage.service.health().problems
        assert problem.startswith("policy 'mine' gives no answer: ")
        assert stage.service.health().ready
        assert b"leasehold_policy_failing 1.0" in stage.service.metrics()
        (line,) = stage.history("policy_warning")
        assert (line.subject_kind, line.subject) == ("policy", "mine")
        assert why in line.data["text"]
        (said,) = [r for r in caplog.records if "cannot be used" in r.message]
        assert (said.levelname, "set by boss" in said.message) == ("ERROR", True)

        # Running jobs go on, and new jobs get left-over workers.
        await stage.job("b", total_steps=100.0)
        await stage.wait(60)
        assert (stage.status("a"), stage.status("b")) == ("running", "running")

        sys.modules["my_package"] = package
        await stage.do(stage.service.set_policy(PolicyChoice(name="fifo"), actor="boss"))
        await stage.wait(3)
        assert stage.service.health().problems == ()

    live(story, nodes={"n0": ("v100", "v100")})
