"""Find a job by its id, the beginning of its id, or its name.

The command line and programs accept the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

#: Most jobs requested for a word, and named if the word means several.
_MOST: Final = 100
_LISTED: Final = 5
#: Jobs in one of these have not ended.
ACTIVE: Final = ("waiting", "running", "held")


class AmbiguousNameError(ValueError):
    """A word means several jobs; its notes name some of them.

    Args:
        word: that was given.
        jobs: that it means, as the scheduler answered.
        more: whether there are more than these.
    """

    def __init__(self, word: str, jobs: Sequence[Mapping[str, Any]], *, more: bool) -> None:
        count = f"more than {len(jobs)}" if more else str(len(jobs))
        super().__init__(f"'{word}' means {count} jobs; give the id of one")
        for job in jobs[:_LISTED]:
            self.add_note(f"{job['job_id']} ({job['name']}, {job['status']})")
        if more:
            self.add_note("... and more")
        elif len(jobs) > _LISTED:
            self.add_note(f"... and {len(jobs) - _LISTED} more")


async def meaning(
    word: str, ask: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
) -> str | None:
    """Return the id of the one job that a word (not an id) means; None if no job matches.

    If some jobs have exactly this name, jobs with ids that begin with the word are left out. If
    some of the remaining ones have not ended, ended ones are left out.

    Args:
        word: the beginning of an id, or a name.
        ask: asks for a page of the list of jobs, by parameters of the query.

    Raises:
        AmbiguousNameError: the word means several jobs.
    """
    for query in _questions(word):
        page = await ask(query | {"limit": _MOST})
        jobs = _so_called(page["jobs"], word)
        if len(jobs) > 1:
            raise AmbiguousNameError(word, jobs, more=page["next_cursor"] is not None)
        if jobs:
            return str(jobs[0]["job_id"])
    return None


async def meanings(
    word: str, ask: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
) -> tuple[str, ...]:
    """Return the ids of the jobs that a word other than an id means, if it may mean an array.

    An array's name means all its elements, including ended ones. Otherwise the rules of ``meaning``
    apply.

    Args:
        word: the beginning of an id, or a name.
        ask: as for ``meaning``.

    Raises:
        AmbiguousNameError: the word means several jobs that are not elements of one array.
    """
    for query in _questions(word):
        jobs = [job async for job in _pages(query, ask)]
        arrays = {_array_of(job, word) for job in jobs}
        if len(arrays) == 1 and None not in arrays:
            return tuple([job_id async for job_id in _elements(jobs[0], word, ask)])
        jobs = _so_called(jobs, word)
        if len(jobs) > 1:
            raise AmbiguousNameError(word, jobs[:_MOST], more=len(jobs) > _MOST)
        if jobs:
            return (str(jobs[0]["job_id"]),)
    return ()


def _questions(word: str) -> Iterator[dict[str, Any]]:
    """Yield queries for the jobs that a word may mean; the first that finds some decides."""
    for which in ({"name": [word]}, {"called": word}):
        for status in (ACTIVE, ()):
            yield {**which, "status": list(status)}


async def _elements(
    job: Mapping[str, Any],
    array: str,
    ask: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]],
) -> AsyncIterator[str]:
    """Yield the ids of all elements of the array that a job belongs to."""
    async for other in _pages({"called": array}, ask):  # the newest first
        if _array_of(other, array) == _array_of(job, array):
            yield str(other["job_id"])
        elif other["submitted_s"] < job["submitted_s"]:
            return


def _so_called(jobs: list[Mapping[str, Any]], word: str) -> list[Mapping[str, Any]]:
    """Return the jobs that have exactly this name; all jobs if no job has it."""
    return [job for job in jobs if job["name"] == word] or jobs


def _array_of(job: Mapping[str, Any], name: str) -> tuple[Any, ...] | None:
    """Return the key that the elements of an array of that name share; None for other jobs."""
    if not job["name"].startswith(f"{name}["):
        return None
    return job["project"], job["owner"], job["submitted_s"]


async def _pages(
    query: dict[str, Any], ask: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the jobs of a list, page by page."""
    asked = {**query, "limit": _MOST}
    while True:
        page = await ask(asked)
        for job in page["jobs"]:
            yield job
        if page["next_cursor"] is None:
            return
        asked["cursor"] = page["next_cursor"]


async def send_for_words(
    which: dict[str, Any],
    send: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    ask: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Send a bulk request, and again for the words in it that were not ids.

    Args:
        which: the part of the request that selects the jobs.
        send: sends the request with such a part and returns its answer.
        ask: as for ``meaning``.

    Returns:
        the answer, with the result of each word's job in the word's place.
    """
    found = await send(which)
    unknown = [acted for acted in found["jobs"] if acted["code"] == "not_found"]
    if "ids" not in which or not unknown:
        return found
    meant: dict[str, str] = {}
    for acted in unknown:
        try:
            job_id = await meaning(acted["job_id"], ask)
        except AmbiguousNameError as error:
            all_of_them = f"--selector name={acted['job_id']} means all of that name"
            said = "; ".join([str(error), *error.__notes__, all_of_them])
            acted |= {"error": said, "code": "invalid"}
        else:
            meant |= {} if job_id is None else {acted["job_id"]: job_id}
    if not meant:
        return found
    again = await send({"ids": list(dict.fromkeys(meant.values()))})
    became = {acted["job_id"]: acted for acted in again["jobs"]}
    jobs = [became.get(meant.get(acted["job_id"], ""), acted) for acted in found["jobs"]]
    return found | {
        "jobs": jobs,
        "changed": sum(acted["changed"] for acted in jobs),
        "failed": sum(bool(acted["error"]) for acted in jobs),
    }
