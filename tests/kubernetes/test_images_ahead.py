"""Images that are pulled before a job needs them, with the rights that the chart gives an agent."""

from __future__ import annotations

from installation import JOBS, eventually
from scenes import ONE_ROUND, one_node


def test_an_image_of_a_waiting_job_is_pulled_by_a_pod_that_asks_for_no_accelerator(live, admin):
    _, made = live([one_node(gpus=1)], settings=ONE_ROUND | {"kubernetes.prepull_images": 2})
    first = made.submit("first", steps=4000)
    eventually("it runs", lambda: made.job(first)["status"] == "running")
    seen = []

    image = "registry.example/second:1"

    def pulling():  # the first one's image may be on its way as well
        pods = [p for p in admin.pods(JOBS) if p["metadata"]["name"].startswith("leasehold-pull-")]
        pods = [p for p in pods if p["spec"]["containers"][0]["image"] == image]
        seen.extend(pods)
        return pods

    made.submit("second", steps=100, image=image)
    eventually("it is pulled", pulling)
    (container,) = seen[0]["spec"]["containers"]
    assert "nvidia.com/gpu" not in str(container["resources"])
    assert seen[0]["spec"]["nodeSelector"]
    eventually("its pod goes", lambda: not pulling())
    assert made.job(first)["status"] == "running"
