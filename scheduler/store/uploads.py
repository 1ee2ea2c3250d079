"""Limits of uploaded code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler.domain.jobs.job import JobStatus
from scheduler.errors import InputError
from scheduler.operator_settings import setting

#: Statuses of jobs that may yet need their code.
ACTIVE: Final = (JobStatus.WAITING.value, JobStatus.RUNNING.value, JobStatus.HELD.value)
#: Trees that one transaction checks.
AT_ONCE: Final = 100


@dataclass(frozen=True, kw_only=True)
class UploadLimits:
    """Code that people upload for their jobs; it is kept in the database."""

    max_bytes: int = setting(
        5 * 2**20, "Largest upload, packed; three quarters of server.max_body_bytes at most.", ge=0
    )
    max_project_bytes: int = setting(256 * 2**20, "Uploads kept of one project.", ge=0)
    max_total_bytes: int = setting(2**30, "Uploads kept in all.", ge=0)
    keep_s: float = setting(
        86_400.0, "How long one is kept that no job needs which has not ended.", ge=60
    )

    def check(self, project: str, size: int, *, own: int, all_: int) -> None:
        """Refuse a tree that exceeds the limits.

        Args:
            project: its project.
            size: its bytes.
            own: bytes of the project so far.
            all_: bytes of all projects so far.

        Raises:
            InputError: the tree is too large, or there are too many bytes already.
        """
        if size > self.max_bytes:
            raise InputError(
                f"the upload has {size} bytes, and at most {self.max_bytes} are taken "
                "(uploads.max_bytes); leave data and environments out"
            )
        if own + size > self.max_project_bytes:
            raise InputError(
                f"project '{project}' would have {own + size} bytes of uploads, and may have "
                f"{self.max_project_bytes} (uploads.max_project_bytes); those that no job needs "
                "go after a while"
            )
        if all_ + size > self.max_total_bytes:
            raise InputError(
                f"the scheduler would have {all_ + size} bytes of uploads, and keeps "
                f"{self.max_total_bytes} (uploads.max_total_bytes); those that no job needs go "
                "after a while"
            )


def in_spec(digest: str) -> str:
    """Return the part of a stored specification that shows that the job runs from a tree."""
    return f'"{digest}"'
