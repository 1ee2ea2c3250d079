"""Which job is meant by a word on the command line: as ``leasehold.naming`` finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold import naming
from leasehold.cli.service.client import job_path
from leasehold.cli.service.output import plain
from scheduler.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.cli.service.client import ServiceClient


def find_job(service: ServiceClient, word: str) -> str:
    """Return the id of the job that a word means.

    A whole id means that job. Any other word is the beginning of an id or a name; where it means
    several jobs, those that have ended are left out.

    Raises:
        NotFoundError: it means no job.
        InputError: it means several, or cannot be part of an id or a name.
    """
    try:
        return str(service.get(job_path(word))["job_id"])
    except NotFoundError:
        try:
            found = naming.meaning(word, _asking(service))
        except naming.AmbiguousNameError as ambiguous:
            error = InputError(str(ambiguous))
            for note in ambiguous.__notes__:
                error.add_note(plain(note))
            raise error from None
        if found is None:
            raise
        return found


def find_jobs(service: ServiceClient, words: Sequence[str]) -> list[str]:
    """Return the ids of the jobs that some words mean, each once; see ``find_job``."""
    return list(dict.fromkeys(find_job(service, word) for word in words))


def send_for_words(
    service: ServiceClient,
    which: dict[str, Any],
    send: Callable[[dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Send a bulk request with words for ids; see ``leasehold.naming.send_for_words``."""
    return naming.send_for_words(which, send, _asking(service))


def _asking(service: ServiceClient) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def ask(params: dict[str, Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = service.get("/jobs", **params)
        except InputError:  # no job can be called so, or a server of the release before
            return {"jobs": []}
        return found

    return ask
