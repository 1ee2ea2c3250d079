"""Agents of an earlier release, beside those of this one, under this scheduler."""

from __future__ import annotations

import pytest
from installation import ROOT, eventually
from scenes import ONE_ROUND, await_steps, two_nodes

from leasehold_testing.releases import OLDEST, release


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return release(ROOT, tmp_path_factory.mktemp("before"), OLDEST)


def problem_of(made, job, node):
    """Run a command beside a job on a node; return why it did not run."""
    path = f"/v1/jobs/{job}/exec"
    begun = made.client.post(path, json={"command": ["true"], "node": node})
    assert begun.status_code < 300, begun.text
    read = f"{path}/{begun.json()['exec_id']}"

    def told():
        answer = made.client.get(f"{read}?wait_s=5").raise_for_status().json()
        return answer if answer["done"] else None

    return eventually("it is answered", told, limit_s=90)["problem"]


def test_exec_in_a_gang_says_which_of_its_agents_is_too_old(live, before):
    kubelets, made = live(two_nodes(), settings=ONE_ROUND, before=before, older={"bert"})
    gang = made.submit("gang", steps=100_000, scale_factor=2)
    await_steps(kubelets, gang)
    said = problem_of(made, gang, "bert")
    assert said.startswith("node 'bert' has not begun it within 30 s"), said
    assert said.endswith("upgrade it if it is of an earlier release, which knows no exec")
    # The other one does as it may: by the chart's default it may not.
    assert "agent.exec=true" in problem_of(made, gang, "ada")
    made.agents["bert"].end()
    assert problem_of(made, gang, "bert").endswith("its agent is away")
    assert len(kubelets.running(gang)) == 2, "the job goes on"
