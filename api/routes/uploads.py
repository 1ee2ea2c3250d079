"""Code that users upload for their jobs."""

import base64
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.access import Ctx, User
from api.answers import Answer
from api.auth.roles import Principal
from api.context import Context
from api.jobs.conversions import default_project
from api.problems import FieldProblem, ProblemError, invalid_request
from api.routing import StrictRoute
from api.schemas.answers import UploadOut
from api.schemas.fields import Digest, ProjectName
from api.schemas.jobs import UploadIn
from api.threads import in_thread
from scheduler.archive import check_tree, digest_of
from scheduler.errors import InputError
from scheduler.store.uploads import UploadLimits

router = APIRouter(prefix="/v1", tags=["uploads"], route_class=StrictRoute)

#: Bytes of a body beside the archive in it.
_BESIDE = 1024
_Hash = Annotated[Digest, Path(description="hexadecimal SHA-256 of the archive")]


@router.get(
    "/uploads/{digest}",
    summary="Ask whether an upload is kept",
    operation_id="find_upload",
    responses={200: {"model": UploadOut}},
)
async def find_upload(
    digest: _Hash,
    context: Ctx,
    principal: User,
    project: Annotated[ProjectName | None, Query(description="its project, as of a job")] = None,
) -> Answer:
    """Return whether a project has an upload; 404 if it has not, even if another project has it.

    A request keeps the upload as long as a new upload would.
    """
    owner = _project(project, principal)
    size = await in_thread(context.store.use_upload, owner, digest, now_s=context.now())
    if size is None:
        raise ProblemError(404, f"project '{owner}' has no upload '{digest}'")
    return _told(owner, digest, size, created=False)


@router.put(
    "/uploads/{digest}",
    summary="Upload code",
    operation_id="keep_upload",
    responses={200: {"model": UploadOut}, 201: {"model": UploadOut, "description": "It is new"}},
)
async def keep_upload(digest: _Hash, given: UploadIn, context: Ctx, principal: User) -> Answer:
    """Keep a tree of code for jobs of a project, which name it as their `upload`.

    The archive is a tar file of plain files and folders that gzip has compressed. Links, devices
    and what leads out of the tree are refused. It is kept as long as a job needs it, and a while.
    """
    owner = _project(given.project, principal)
    archive = await context.heavily(_archive, given.archive, digest)
    limits = _limits(context)
    created = await in_thread(
        context.store.keep_upload, owner, digest, archive, now_s=context.now(), limits=limits
    )
    return _told(owner, digest, len(archive), created=created)


def _project(named: str | None, principal: Principal) -> str:
    project = default_project(principal) if named is None else named
    if not principal.sees(project):
        names = ", ".join(sorted(principal.projects))
        raise ProblemError(
            403,
            f"the token of '{principal.subject}' is confined to {names} and has no uploads of "
            f"project '{project}'; name one of its projects",
        )
    return project


def _archive(text: str, digest: str) -> bytes:
    """Return a checked archive; call this in a thread."""
    try:
        archive = base64.b64decode(text, validate=True)
    except ValueError as error:  # also for letters beyond ASCII
        raise invalid_request([_fault(f"is no base64: {error}")]) from error
    if (found := digest_of(archive)) != digest:
        raise invalid_request([_fault(f"has the hash {found}, and not that of the address")])
    try:
        check_tree(archive)
    except InputError as error:
        raise invalid_request([_fault(f"cannot be used: {error}")]) from error
    return archive


def _fault(problem: str) -> FieldProblem:
    return FieldProblem(field="archive", value=None, problem=problem)


def _limits(context: Context) -> UploadLimits:
    """Return the limits of uploads; the largest body counts as a limit too."""
    limits, settings = context.settings.uploads, context.settings
    fits = (settings.max_body_bytes - _BESIDE) // 4 * 3
    return replace(limits, max_bytes=min(limits.max_bytes, max(fits, 0)))


def _told(project: str, digest: str, size: int, *, created: bool) -> Answer:
    told = {"project": project, "digest": digest, "size_bytes": size, "created": created}
    return Answer(told, 201 if created else 200)
