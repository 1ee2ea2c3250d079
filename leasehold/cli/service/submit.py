"""``leasehold submit``: jobs from files, or one from the command line."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import typer
from typer.core import TyperCommand

from leasehold.cli import exit_codes
from leasehold.cli.display.output import format_number, print_json, print_remark, print_shown, table
from leasehold.cli.jobspec import spec_options as given
from leasehold.cli.jobspec.uploading import Exclude, Upload, send_code
from leasehold.cli.reading.spec_files import read_jobs
from leasehold.cli.session.follow import follow_jobs, wait_for_jobs
from leasehold.cli.session.problems import detail_of, field_lines, problem_error
from leasehold.cli.session.remote import Json, remote
from leasehold.cli.session.wording import Wording, option_of, wording_of_job
from scheduler.errors import (
    AdmissionError,
    InputError,
    LeaseholdError,
    NotFoundError,
    UnreachableError,
)
from scheduler.views.job_documents import check_values, error_of_mistakes
from scheduler.views.plan_words import plan_in_words
from scheduler.views.times import format_when

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import JobIn

#: Jobs of one request; many small ones would each cost a commit.
_BATCH: Final = 500
#: Key of the words after ``--`` while the options are parsed.
COMMAND_KEY: Final = "leasehold.command"
ClientId: TypeAlias = Annotated[
    str | None,
    typer.Option("--client-id", help="Submitting the same id again changes nothing."),
]
Hold: TypeAlias = Annotated[bool, typer.Option("--hold", help="Hold it until it is released.")]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE... | -- COMMAND [ARGUMENT...]",
        help="YAML, JSON or TOML with jobs (- for standard input), or a command behind --.",
        show_default=False,
    ),
]


class CommandBehindDashes(TyperCommand):
    """Keeps the words after ``--`` apart, so that a command is never taken for a file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words before ``--``."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND_KEY] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@remote
@given.with_job_options
def submit(
    service: ServiceClient,
    context: typer.Context,
    files: Files = None,
    *,
    array: Annotated[
        int | None, typer.Option("--array", min=1, metavar="N", help="Submit N copies.")
    ] = None,
    hold: Hold = False,
    client_id: ClientId = None,
    upload: Upload = False,
    exclude: Exclude = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show whether and where it could run; submit nothing.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="yaml: with --dry-run, show the pods of the jobs."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all have ended; 0 if all completed.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow their history until all have ended.")
    ] = False,
    as_json: Json = False,
    **of_jobs: Any,
) -> None:
    """Submit jobs. Options apply to every job of a file."""
    values = of_jobs | {"array": array, "hold": hold}
    command = context.meta.get(COMMAND_KEY)
    jobs, wordings = _jobs(service, files or [], command, values)
    if len(jobs) == 1:
        service.wording = wordings[0]
    if output is not None and (output != "yaml" or not dry_run):
        raise InputError(f"-o is '{output}'; use -o yaml together with --dry-run")
    send_code(service, jobs, upload=upload, exclude=exclude, trial=dry_run)
    if dry_run:
        _try(service, jobs, wordings, as_json=as_json, pods=output is not None)
        return
    results = _submit_once(service, jobs, client_id)
    ids = [result["job_id"] for result in results if result.get("job_id")]
    if as_json and not watch:
        print_json({"jobs": results})
    elif not as_json:
        _show(results, wordings)
    _tell_new_project(service, results, values.get("project"))
    code = _code(results)
    if code == 0 and watch:
        code = follow_jobs(service, ids, as_json=as_json)
    elif code == 0 and wait:
        code = wait_for_jobs(service, ids)
    if code:
        raise typer.Exit(code)


def submit_command(
    service: ServiceClient,
    command: list[str],
    values: dict[str, Any],
    *,
    client_id: str | None,
    upload: bool = False,
    exclude: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Submit one job of the command line.

    Args:
        service: receives the job.
        command: program and arguments.
        values: of the options, by the names of ``submit``'s parameters.
        client_id: identifies the job in retries; generated unless given.
        upload: whether its folder is sent along.
        exclude: patterns of files to leave out.

    Returns:
        its ``job_id``, and whether this call ``created`` it.

    Raises:
        LeaseholdError: an option cannot be used, or the scheduler refuses the job.
    """
    jobs, wordings = _jobs(service, [], command, values)
    service.wording = wordings[0]
    send_code(service, jobs, upload=upload, exclude=exclude)
    return _submit_once(service, jobs, client_id)[0]


def _jobs(
    service: ServiceClient,
    files: Sequence[str],
    command: list[str] | None,
    values: dict[str, Any],
) -> tuple[list[dict[str, Any]], list[Wording]]:
    """Return the jobs, and the user's names for their fields."""
    if bool(files) == bool(command):
        raise InputError(
            "give files, or a command behind --: `leasehold submit job.yaml`, "
            "`leasehold submit --workers 2 -- python train.py`" + ("; not both" if files else "")
        )
    own = given.job_of_options(command or [], values, env=dict(os.environ))
    if "depends_on" in own:
        words = own["depends_on"]
        own["depends_on"] = list(dict.fromkeys(i for word in words for i in _meant(service, word)))
    check_values(own, word=option_of)
    if command:
        return [own], [wording_of_job(None, own)]
    mistakes: list[str] = []
    found = [pair for name in files for pair in read_jobs(name, mistakes)]
    jobs = [_changed(job, own) for job, _ in found]
    wordings = [wording_of_job(document, own) for _, document in found]
    if mistakes:
        raise error_of_mistakes(mistakes + _further_mistakes(service, jobs, wordings))
    return jobs, wordings


def _further_mistakes(
    service: ServiceClient, jobs: list[dict[str, Any]], wordings: Sequence[Wording]
) -> list[str]:
    """Return the scheduler's complaints about jobs beside those found here."""
    service.wording = wordings[0]
    try:
        items = _tried(service, jobs, forecast=False)
    except InputError as error:
        return list(getattr(error, "__notes__", ())) or [str(error)]
    except LeaseholdError:  # the user must fix the faults found here first
        return []
    many = len(jobs) > 1
    return [
        f"job {item['index']}: {line}" if many else line
        for item in items
        if item["error"]
        for line in field_lines(item["error"], wordings[item["index"]])
    ]


def _meant(service: ServiceClient, word: str) -> list[str]:
    """Return the ids that a word means: of one job, or of all elements of an array.

    The scheduler refuses a word that means no job.
    """
    try:
        return service.ids_of(word)
    except NotFoundError:
        return [word]


def _changed(job: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Apply options to a job of a file; variables and labels are added to the job's."""
    made = job | own
    if own.keys() & {"deadline_s", "deadline_in_s"}:  # one of them at most
        made = {k: v for k, v in made.items() if not k.startswith("deadline_") or k in own}
    for field in ("env", "secret_env", "labels", "throughputs"):
        if field in own and isinstance(job.get(field), dict):
            made[field] = job[field] | own[field]
    return made


def _submit_once(
    service: ServiceClient, jobs: list[dict[str, Any]], client_id: str | None
) -> list[dict[str, Any]]:
    """Submit jobs under a client id, which is told if the user may need it."""
    key = client_id or uuid.uuid4().hex
    _name_requests(jobs, key)
    try:
        return _submit(service, jobs)
    except UnreachableError as error:
        if client_id is None and "same client id" in str(error):
            print_remark(f"the client id is {key}: with --client-id {key} no job comes twice")
        raise


def _name_requests(jobs: list[dict[str, Any]], client_id: str) -> None:
    """Give every job a client id, so that a retry after a lost answer is recognised."""
    for i, job in enumerate(jobs):
        job.setdefault("client_id", client_id if len(jobs) == 1 else f"{client_id}-{i}")


def _submit(service: ServiceClient, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(jobs) == 1 and "array" not in jobs[0]:
        # A single unusable job gets a specific error with its fields.
        try:
            only = service.submit_one(_form(jobs[0]))
        except (AdmissionError, InputError) as error:
            if len(getattr(error, "__notes__", ())) <= 1:  # else there are other faults
                _find_dependencies(service, jobs[0])
            raise
        return [{"index": 0, "array_index": None, "error": None, **only}]
    results: list[dict[str, Any]] = []
    first = 0
    for batch in _batches(jobs):
        found = service.submit_all([_form(job) for job in batch])
        results += [{**result, "index": first + result["index"]} for result in found]
        first += len(batch)
    return results


def _find_dependencies(service: ServiceClient, job: dict[str, Any]) -> None:
    """Look up the jobs that a refused job depends on.

    Raises:
        NotFoundError: there is no such job: the name is wrong, so this is not a refusal.
    """
    named = job.get("depends_on")
    for other in named if isinstance(named, list) else ():
        if not isinstance(other, str) or not other:
            continue
        try:
            service.job(other)
        except NotFoundError:
            raise NotFoundError(
                f"there is no job '{other}', which {service.wording('depends_on')} names; "
                "`leasehold jobs` lists them"
            ) from None
        except LeaseholdError:  # the present refusal is more informative
            return


def _batches(jobs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Split jobs so that no request has too many, with elements of arrays counted."""
    batches: list[list[dict[str, Any]]] = [[]]
    size = 0
    for job in jobs:
        array = job.get("array")
        count = array if isinstance(array, int) else 1
        if batches[-1] and size + count > _BATCH:
            batches.append([])
            size = 0
        batches[-1].append(job)
        size += count
    return batches


def _code(results: list[dict[str, Any]]) -> int:
    refused = [result for result in results if not result["job_id"]]
    if not refused:
        return 0
    if len(refused) < len(results):
        return exit_codes.FAILED
    return max(exit_codes.code_of(problem_error(result["error"])) for result in refused)


def _tell_new_project(
    service: ServiceClient, results: list[dict[str, Any]], project: str | None
) -> None:
    """Warn that a project had no jobs before: its name may be misspelt."""
    ids = {result["job_id"] for result in results if result["job_id"] and result["created"]}
    if not project or not ids:
        return
    try:
        oldest = service.job_page(project=[project], sort="submitted", limit=1)["jobs"]
    except LeaseholdError:  # the jobs are submitted; this is only a remark
        return
    if {job["job_id"] for job in oldest} <= ids:
        print_remark(f"project '{project}' had no jobs before these")


def _show(results: list[dict[str, Any]], wordings: Sequence[Wording]) -> None:
    """Print the ids of the jobs, and once for each job why elements of it were refused."""
    elements = Counter(result["index"] for result in results)
    refused: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for result in results:
        index = result["index"]
        if result["job_id"]:
            typer.echo(result["job_id"])
            if not result["created"]:
                print_remark(f"{result['job_id']} was submitted before under this client id")
        else:
            refused[index, _refusal(index, result["error"], wordings)] += 1
    for (index, words), count in refused.items():
        _tell_refusal(words, count, elements[index])


def _tell_refusal(words: tuple[str, ...], count: int = 1, of: int = 1) -> None:
    said, *lines = words
    print_remark(said + (f" ({count} of {of} elements)" if of > 1 else ""))
    for line in lines:
        typer.echo(f"  {line}", err=True)


def _refusal(index: int, problem: dict[str, Any], wordings: Sequence[Wording]) -> tuple[str, ...]:
    """Return why a job was refused, and a line for each of its fields that is wrong."""
    which = "the job" if len(wordings) == 1 else f"job {index}"
    detail = detail_of(problem, wordings[index])
    return (f"{which} was not taken: {detail}", *field_lines(problem, wordings[index]))


def _try(
    service: ServiceClient,
    jobs: list[dict[str, Any]],
    wordings: Sequence[Wording],
    *,
    as_json: bool,
    pods: bool = False,
) -> None:
    """Print for every job whether it could run, or show its pod.

    Raises:
        typer.Exit: some job could not run.
    """
    items = _tried(service, jobs, forecast=not pods)
    if pods:
        _show_pods(items)
    elif as_json:
        print_json({"jobs": items})
    else:
        for job, item in zip(jobs, items, strict=True):
            if item["error"]:
                _tell_refusal(_refusal(item["index"], item["error"], wordings))
            else:
                _show_fit(str(job.get("name", "")), item["fit"])
    codes = [code for item in items if (code := _code_of_trial(item))]
    if codes:
        raise typer.Exit(max(codes) if len(codes) == len(items) else exit_codes.FAILED)


def _tried(
    service: ServiceClient, jobs: list[dict[str, Any]], *, forecast: bool
) -> list[dict[str, Any]]:
    if len(jobs) == 1:
        fit = service.dry_run(forecast=forecast, **_form(jobs[0]))
        return [{"index": 0, "fit": fit, "error": None}]
    items: list[dict[str, Any]] = []
    for batch in _batches(jobs):
        found = service.dry_run_all([_form(job) for job in batch])
        items += [{**item, "index": len(items) + i} for i, item in enumerate(found)]
    return items


def _form(job: dict[str, Any]) -> JobIn:
    """Return a job as the user wrote it; the scheduler reports its faults."""
    return cast("JobIn", job)


def _code_of_trial(item: dict[str, Any]) -> int:
    if item["error"]:
        return exit_codes.code_of(problem_error(item["error"]))
    return 0 if item["fit"]["fits"] else exit_codes.REFUSED


def _show_pods(items: list[dict[str, Any]]) -> None:
    import yaml  # noqa: PLC0415 - only where pods are shown

    pods = [item["fit"].get("pod") for item in items if item["fit"]]
    shown = [pod for pod in pods if pod]
    if len(shown) < len(items):
        print_remark(
            f"{len(items) - len(shown)} of {len(items)} jobs have no pod: they name no image"
        )
    typer.echo(yaml.safe_dump_all(shown, sort_keys=False, width=100), nl=False)


def _show_fit(name: str, fit: dict[str, Any]) -> None:
    verdict = "fits" if fit["fits"] else "does not fit"
    print_shown(f"{name} {verdict}: {fit['message']}")
    now_s, starts_s = time.time(), fit.get("starts_s")
    facts = (
        ("starts", "now" if starts_s and starts_s <= now_s + 1 else format_when(starts_s, now_s)),
        ("completes", format_when(fit.get("completes_s"), now_s)),
        ("forecast", fit.get("forecast", "")),  # an older server makes none
    )
    for label, value in facts:
        if value:
            print_shown(f"  {label + ':':<11}{value}")
    if fit["configurations"]:
        headings = (
            "worker type", ">workers", ">steps/s", "source", ">in service", ">idle", "",
        )  # fmt: skip
        rows = [
            (
                c["worker_type"],
                c["count"],
                format_number(c["steps_per_s"]),
                c["source"],
                c["workers_in_service"],
                c["workers_idle"],
                " ".join(filter(None, (_place(c), plan_in_words(c.get("plan", ""))))),
            )
            for c in fit["configurations"]
        ]
        shown = slice(None if any(row[-1] for row in rows) else -1)
        print_shown(table(headings[shown], [row[shown] for row in rows], wrapped=True))


def _place(configuration: Mapping[str, Any]) -> str:
    """Return where the workers must be; empty if that is anywhere."""
    locality: str = configuration.get("locality", "any")
    return "" if locality == "any" else locality


_app = typer.Typer(add_completion=False)
_app.command("submit", cls=CommandBehindDashes)(submit)
command = typer.main.get_command(_app)
