"""Which job is meant: by its id, the beginning of it, or its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.cli.service.client import job_path
from scheduler.cli.service.output import plain
from scheduler.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.cli.service.client import ServiceClient

#: Jobs that are asked for by a word, and that are named where it means several.
_MOST: Final = 100
_LISTED: Final = 5
_ACTIVE: Final = ("waiting", "running", "held")


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
        found = _meaning(service, word)
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
    """Send a bulk request, and once more for the words in it that were no ids.

    Args:
        service: knows the jobs.
        which: the part of the request that says which jobs are meant.
        send: sends the request with such a part and returns its answer.

    Returns:
        the answer, with what became of each word's job in the word's place.
    """
    found = send(which)
    unknown = [acted for acted in found["jobs"] if acted["code"] == "not_found"]
    if "ids" not in which or not unknown:
        return found
    meant: dict[str, str] = {}
    for acted in unknown:
        try:
            job_id = _meaning(service, acted["job_id"])
        except InputError as error:
            acted |= {"error": _on_one_line(error), "code": "invalid"}
        else:
            meant |= {} if job_id is None else {acted["job_id"]: job_id}
    if not meant:
        return found
    again = send({"ids": list(dict.fromkeys(meant.values()))})
    became = {acted["job_id"]: acted for acted in again["jobs"]}
    jobs = [became.get(meant.get(acted["job_id"], ""), acted) for acted in found["jobs"]]
    return found | {
        "jobs": jobs,
        "changed": sum(acted["changed"] for acted in jobs),
        "failed": sum(bool(acted["error"]) for acted in jobs),
    }


def _meaning(service: ServiceClient, word: str) -> str | None:
    """Return the id of the one job that a word that is no id means; None where it means none."""
    try:
        found = service.get("/jobs", called=word, limit=_MOST)["jobs"]
    except InputError:  # no job can be called so, or a server of the release before
        return None
    meant = [job for job in found if job["status"] in _ACTIVE] or found
    if len(meant) > 1:
        error = InputError(f"'{word}' means {len(meant)} jobs; give the id of one")
        for job in meant[:_LISTED]:
            error.add_note(f"{job['job_id']} ({plain(job['name'])}, {job['status']})")
        if len(meant) > _LISTED:
            error.add_note(f"... and {len(meant) - _LISTED} more")
        raise error
    return str(meant[0]["job_id"]) if meant else None


def _on_one_line(error: InputError) -> str:
    return "; ".join([str(error), *getattr(error, "__notes__", ())])
