"""The pod of a job, as far as it can be known before the job has a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod
from agent.kubernetes.templates.options import pod_options
from agent.kubernetes.templates.rules import check_submitted
from api.problems import FieldProblem, invalid_request
from scheduler.errors import InputError
from scheduler.protocol.desired import DesiredLease
from scheduler.protocol.variables import variables_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.domain.jobs.spec import JobSpec

#: Placeholder for the node that the scheduler will choose, and for a secret.
NODE: Final = "NODE"
USUAL_GRACE_S: Final = 5.0  # the operator's figure may differ
#: Workers of one node at most: a gang of more has them on several, and no pod holds them all.
MOST_WORKERS: Final = 1024
#: That of the agent's setting.
CODE_IMAGE: Final = "CODE-IMAGE"
SECRET: Final = "SECRET"  # noqa: S105 - it stands for one


def pod_preview(
    spec: JobSpec, *, worker_type: str = "WORKER-TYPE", allows: Collection[str] = ()
) -> dict[str, Any] | None:
    """Return the pod of a job's rank 0; None for a job that says nothing about pods.

    Args:
        spec: the job.
        worker_type: of the workers that it would hold.
        allows: template fields that the operator allows; see ``ApiSettings``.

    Raises:
        ProblemError: its pod options cannot be used; names the field and its value.
    """
    if not spec.image and not spec.kubernetes:
        return None
    count = min(spec.scale_factor, MOST_WORKERS)
    lease = DesiredLease(
        lease_id=0,
        attempt=1,
        token=0,
        job_id=spec.name,
        command=spec.command,
        env=variables_of(spec),
        secret_env=dict.fromkeys(spec.secret_env, SECRET),
        working_dir=spec.working_dir,
        checkpoint_dir=spec.checkpoint_dir,
        workers=tuple(range(count)),
        world_size=count,
        local_ranks=tuple(range(count)),
        total_steps=None if spec.total_steps is None else int(spec.total_steps),
        remaining_s=0.0,
        grace_s=USUAL_GRACE_S if spec.grace_s is None else spec.grace_s,
        progress_file=spec.progress_file,
        memory_bytes=spec.memory_bytes,
        cpus=spec.cpus,
        image=spec.image or "DEFAULT-IMAGE",
        kubernetes=spec.kubernetes,
        project=spec.project,
        upload=spec.upload,
    )
    workers = (PodWorker(worker_type=worker_type),) * count
    place = PodPlace(node=NODE, hostname=NODE, workers=workers)
    try:
        settings = PodSettings(code_image=CODE_IMAGE)
        pod = build_pod(lease, place, secret=SECRET, settings=settings)
        variables = {**spec.env, **lease.secret_env}  # of the secret ones an error quotes nothing
        check_submitted(pod_options(spec.kubernetes), variables, allows=allows)
    except InputError as error:
        text = str(error)
        field = text.split("'")[1] if text.startswith("field '") else "kubernetes"
        raise invalid_request([FieldProblem(field=field, value=None, problem=text)]) from error
    return pod
