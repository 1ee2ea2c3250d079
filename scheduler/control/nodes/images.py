"""Images that nodes may soon need: those of jobs planned for them, then of waiting jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.jobs.job import JobStatus
from scheduler.protocol.desired import DesiredImage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.state import ControlState


def upcoming_images(state: ControlState, *, most: int) -> dict[str, tuple[DesiredImage, ...]]:
    """Return node -> images, most urgent first; nodes that need none are left out.

    Args:
        state: of the leader.
        most: images per node.
    """
    planned = _planned(state)
    queue = _queue(state)
    by_type = {
        name: _waiting(state, name, queue, most=most) for name in state.engine.cluster.type_names
    }
    found: dict[str, tuple[DesiredImage, ...]] = {}
    for node in state.nodes.by_name.values():
        if node.lost or node.order is not None:
            continue
        images = dict.fromkeys(planned.get(node.name, ()))
        for worker_type in dict.fromkeys(node.types):
            images |= dict.fromkeys(by_type[worker_type])
        if images:
            found[node.name] = tuple(images)[:most]
    return found


def _planned(state: ControlState) -> Mapping[str, list[DesiredImage]]:
    """Return node -> images of the jobs that will begin there when their workers are free."""
    found: dict[str, list[DesiredImage]] = {}
    job_of = state.engine.jobs.job_of
    for plan in state.engine.book.planned.values():
        record = state.jobs.by_id.get(job_of[plan.number].job_id)
        image = None if record is None else image_of(record)
        if image is not None:
            for node in {state.nodes.place(worker)[0] for worker in plan.workers}:
                found.setdefault(node, []).append(image)
    return found


def _waiting(
    state: ControlState, worker_type: str, queue: Iterable[JobRecord], *, most: int
) -> tuple[DesiredImage, ...]:
    """Return images of waiting jobs that may run on a worker type, in order of submission."""
    images = (
        image_of(record)
        for record in queue
        if state.knowledge.key(record.profile).allows(worker_type)
    )
    return tuple(dict.fromkeys(image for image in images if image is not None))[:most]


def _queue(state: ControlState) -> Iterable[JobRecord]:
    """Return the first waiting job of each profile and image; of ten thousand most are alike."""
    first: dict[tuple[int, str], JobRecord] = {}
    for record in state.jobs.by_id.values():
        if record.status is JobStatus.WAITING and record.blocked_on is None and record.spec.image:
            first.setdefault((record.profile, record.spec.image), record)
    return first.values()


def image_of(record: JobRecord) -> DesiredImage | None:
    """Return the image of a job and its pull secrets; None if the job names no image."""
    if not record.spec.image:
        return None
    given = record.spec.kubernetes.get("image_pull_secrets")
    secrets = given if isinstance(given, list | tuple) else ()
    return DesiredImage(name=record.spec.image, pull_secrets=tuple(map(str, secrets)))
