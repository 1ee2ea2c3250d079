"""``leasehold run``: submit a command, follow it, and exit with its code."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli import exit_codes
from leasehold.cli.display.output import plain_cell, print_remark
from leasehold.cli.jobspec import spec_options as given
from leasehold.cli.jobspec.uploading import Exclude, Upload  # noqa: TC001 - typer reads them
from leasehold.cli.service.logs import Attempts, Printer, Raw, tell_end
from leasehold.cli.service.submit import (
    COMMAND_KEY,
    ClientId,
    CommandBehindDashes,
    Hold,
    submit_command,
)
from leasehold.cli.session.follow import await_end
from leasehold.cli.session.outages import with_retries
from leasehold.cli.session.remote import remote
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Attempt
    from leasehold.client.streams import LogEnd

#: Seconds to wait for a second Ctrl-C.
_SECOND_S: Final = 3.0
#: A shell's exit code for a process ended by a signal, minus the signal's number.
_BY_SIGNAL: Final = 128
#: Exit codes for ends without a code of the job.
_CODES: Final = {
    "cancelled": exit_codes.CANCELLED,
    "refused": exit_codes.REFUSED,
    "is forgotten": exit_codes.NOT_FOUND,
}


@remote
@given.with_job_options
def run(
    service: ServiceClient,
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND [ARGUMENT...]", help="The command to run.", show_default=False
        ),
    ] = None,
    *,
    hold: Hold = False,
    client_id: ClientId = None,
    upload: Upload = False,
    exclude: Exclude = None,
    raw: Raw = False,
    cancel_on_interrupt: Annotated[
        bool,
        typer.Option(
            "--cancel-on-interrupt",
            help="Cancel it at the first Ctrl-C, or SIGTERM; else Ctrl-C twice does.",
        ),
    ] = False,
    **of_jobs: Any,
) -> None:
    """Submit a command, follow its output, and end with its exit code.

    What fails is not tried again unless --retries says so. Ctrl-C leaves the job running; a second
    one within 3 s cancels it.
    """
    command = context.meta.get(COMMAND_KEY)
    if words or not command:
        raise InputError("give the command behind --: `leasehold run --workers 2 -- python x.py`")
    if of_jobs.get("retries") is None:
        of_jobs["retries"] = 0  # the caller waits for the exit code
    taken = submit_command(
        service,
        command,
        of_jobs | {"hold": hold},
        client_id=client_id,
        upload=upload,
        exclude=exclude,
    )
    job_id = taken["job_id"]
    how = "submitted" if taken["created"] else "was submitted before under this client id"
    print_remark(f"{job_id} {how}")
    if cancel_on_interrupt:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    end = _followed(service, job_id, raw=raw, cancels=cancel_on_interrupt)
    tell_end(end, follow=True, job_id=job_id)
    if code := _code(service, job_id):
        raise typer.Exit(code)


def _followed(service: ServiceClient, job_id: str, *, raw: bool, cancels: bool) -> LogEnd:
    """Print a job's output until it has ended; Ctrl-C may cancel it, once.

    Raises:
        typer.Exit: Ctrl-C ended the following.
    """
    printer = Printer(Attempts(service, job_id), as_json=False, marked=False, raw=raw)

    def follow() -> LogEnd:
        return printer.print_all(service.log_pieces(job_id, follow=True, seen=printer.shown))

    cancelling = False
    while True:
        try:
            if cancelling:
                print_remark(f"cancelling {job_id}; its output is followed to its end")
                with_retries(
                    service, lambda: service.cancel(job_id, reason="interrupted by its user")
                )
            return with_retries(service, follow)  # the scheduler may be away, but it has the job
        except KeyboardInterrupt:
            if cancelling:
                print_remark(f"interrupted; `leasehold job {job_id}` shows its result")
            elif cancels or _asked_twice(service, job_id):
                cancelling = True
                continue
            raise typer.Exit(exit_codes.INTERRUPTED) from None


def _asked_twice(service: ServiceClient, job_id: str) -> bool:
    """Explain Ctrl-C, and wait for a second one if there is a terminal."""
    print_remark(
        f"{job_id} goes on: `leasehold logs -f {job_id}` follows it, `leasehold cancel {job_id}` "
        "ends it"
    )
    if not sys.stdin.isatty():
        return False
    print_remark(f"Ctrl-C once more within {_SECOND_S:g} s cancels it")
    try:
        service.sleep(_SECOND_S)
    except KeyboardInterrupt:
        return True
    return False


def _code(service: ServiceClient, job_id: str) -> int:
    """Return the exit code for an ended job, and print the reason if it is not 0."""
    status = await_end(service, job_id)
    if status == "completed":
        return 0
    if status != "failed":
        print_remark(f"{job_id} {status}; `leasehold explain {job_id}` says more")
        return _CODES[status]
    reason = with_retries(service, lambda: service.job(job_id)["reason"])
    attempts = with_retries(service, lambda: service.attempts(job_id))
    code = code_of_failure(reason, attempts)
    said = plain_cell(attempts[-1]["message"]) if attempts else ""
    if reason == "time_limit":
        print_remark(f"{job_id} was stopped by --max-run-time")
        return code
    print_remark(f"{job_id} failed" + (f": {said}" if said else f" with exit code {code}"))
    return code


def code_of_failure(reason: str | None, attempts: Sequence[Attempt]) -> int:
    """Return the exit code for a job's failure.

    Args:
        reason: the scheduler's reason of the failure.
        attempts: of the job, oldest first; the newest one's code counts.

    Returns:
        1 to 255: that of the job's process; 128 and the number of the signal that ended it;
        otherwise one of ours.
    """
    if reason == "time_limit":
        return exit_codes.TIME_LIMIT
    code = attempts[-1]["exit_code"] if attempts else None
    if not code:
        return exit_codes.NO_CODE
    return _BY_SIGNAL - code if code < 0 else code & 0xFF or 1


_app = typer.Typer(add_completion=False)
_app.command("run", cls=CommandBehindDashes)(run)
command = typer.main.get_command(_app)
