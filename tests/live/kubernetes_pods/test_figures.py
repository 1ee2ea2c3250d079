"""Our own containers fit namespaces with limits, and what refuses them blames no job."""

from __future__ import annotations

import pytest

from agent.kubernetes.client import AdmissionRefusedError
from agent.kubernetes.pods.ends import StartBounds
from agent.kubernetes.pods.figures import of_ours
from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod
from scheduler.domain.facts.troubles import trouble_of
from scheduler.domain.lease_life import EndReason

BOTH = PodSettings(guard_image="leasehold/agent:1", code_image="leasehold/agent:1")
DIGEST = "0123456789abcdef" * 4
#: As the quota controller and the LimitRanger of Kubernetes write them.
LITTLE = "minimum memory usage per Container is 128Mi, but {} is {}"
MUCH = "maximum memory usage per Container is 1Gi, but limit is 2Gi"
UNSET = "failed quota: q: must specify limits.cpu"
REFUSALS = [
    (f"{UNSET} for: leasehold-guard", True),
    (f"{UNSET} for: leasehold-code,leasehold-guard", True),
    (f"{UNSET} for: job,leasehold-guard", False),
    (f"{UNSET} for: leasehold-guard; limits.memory for: job", False),
    (f"{UNSET},limits.memory", False),
    (LITTLE.format("request", "24Mi"), True),
    (f"[{LITTLE.format('limit', '64Mi')}, {LITTLE.format('request', '24Mi')}]", True),
    (LITTLE.format("request", "25165824"), True),
    (LITTLE.format("request", "1Mi"), False),
    (f"[{LITTLE.format('request', '24Mi')}, {MUCH}]", False),
    (MUCH, False),
    ("maximum cpu usage per Container is 100m, but limit is 200m", True),
    ("maximum cpu usage per Container is 2. No limit is specified", False),
    ("maximum memory usage per Pod is 1Gi, but limit is 64Mi", False),
    ("cpu max limit to request ratio per Container is 10, but provided ratio is 40.000000", True),
    ("cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000", False),
    ('admission webhook "policy" denied the request: no tags', False),
]


def built(make_lease, **settings):
    lease = make_lease(
        upload=DIGEST, cpus=4.0, memory_bytes=2 * 2**30, kubernetes={"requests": {"cpu": "1"}}
    )
    place = PodPlace(node="n1", hostname="n1", workers=(PodWorker(worker_type="v100"),))
    return build_pod(lease, place, secret="s", settings=PodSettings(
        guard_image="leasehold/agent:1", code_image="leasehold/agent:1", **settings
    ))  # fmt: skip


def test_our_own_containers_have_all_four_figures(make_lease):
    """Or a quota on `limits.cpu` refuses every pod: must specify limits.cpu for them."""
    own = {c["name"]: c["resources"] for c in built(make_lease)["spec"]["initContainers"]}
    assert own == {
        "leasehold-guard": {
            "requests": {"cpu": "5m", "memory": "24Mi"},
            "limits": {"cpu": "200m", "memory": "64Mi"},
        },
        "leasehold-code": {
            "requests": {"cpu": "5m", "memory": "32Mi"},
            "limits": {"cpu": "1", "memory": "256Mi"},
        },
    }


def test_an_operator_sets_single_figures_and_a_limit_is_at_least_the_request(make_lease):
    """As for a LimitRange with a `min` of 128Mi."""
    told = {"guard_resources": {"requests.memory": "128Mi"}, "code_resources": {"limits.cpu": "2"}}
    guard, code = built(make_lease, **told)["spec"]["initContainers"]
    assert guard["resources"] == {
        "requests": {"cpu": "5m", "memory": "128Mi"},
        "limits": {"cpu": "200m", "memory": "128Mi"},
    }
    assert code["resources"]["limits"] == {"cpu": "2", "memory": "256Mi"}


@pytest.mark.parametrize(("message", "ours"), REFUSALS)
def test_a_refusal_is_ours_if_it_names_only_our_containers_figures(make_lease, message, ours):
    error = AdmissionRefusedError(f'POST /pods: pods "x" is forbidden: {message} (403 Forbidden)')
    assert of_ours(error, built(make_lease)) is ours


def test_a_limit_range_that_refuses_the_guard_fails_no_job(play, make_lease, failure):
    message = 'pods "x" is forbidden: minimum memory usage per Container is 128Mi, but request is '

    async def scene(stage):
        stage.api.fault("POST", "/pods", failure(403, "Forbidden", f"{message}24Mi"), times=1000)
        stage.start(make_lease())
        waiting = await stage.until(lambda: (r := stage.report()).reason_code and r)
        assert trouble_of(waiting.reason_code, waiting.message) == "own_container"
        report = await stage.ended()
        assert report.reason is EndReason.LOST
        assert "but request is 24Mi" in report.message

    play(scene, settings=BOTH, bounds=StartBounds(trouble_s=0.5))


def test_a_limit_range_that_refuses_the_job_fails_it(play, make_lease, failure):
    message = 'pods "x" is forbidden: minimum memory usage per Container is 128Mi, but request is '

    async def scene(stage):
        stage.api.fault("POST", "/pods", failure(403, "Forbidden", f"{message}1Mi"))
        stage.start(make_lease())
        assert (await stage.ended()).reason is EndReason.FAILED

    play(scene, settings=BOTH)
