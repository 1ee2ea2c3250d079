"""``leasehold exec``: run a command beside a job, and exit with its code."""

from __future__ import annotations

import base64
import codecs
import contextlib
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli import exit_codes
from leasehold.cli.display.output import plain_cell, print_json_line, print_remark
from leasehold.cli.service.submit import COMMAND_KEY, CommandBehindDashes
from leasehold.cli.session.completion import complete_job
from leasehold.cli.session.remote import remote
from leasehold.cli.session.wording import wording_of as wording_of_exec
from scheduler.errors import InputError, LeaseholdError
from scheduler.views.times import parse_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.cli.session.client import ServiceClient

#: Most bytes of a command's standard input.
MOST_STDIN: Final = 256 * 1024
_WAIT_S: Final = 20.0


@remote
def execute(
    service: ServiceClient,
    context: typer.Context,
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Id or name.", autocompletion=complete_job)
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND [ARGUMENT...]", help="The command to run.", show_default=False
        ),
    ] = None,
    *,
    rank: Annotated[
        int | None,
        typer.Option("--rank", min=0, help="Beside which process of a gang; 0 by default."),
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", help="The same by the name of its node.")
    ] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="After so long it is ended.")
    ] = "1h",
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print lines of JSON: each piece of output, then its end."),
    ] = False,
) -> None:
    """Run a command inside a running job, print its output, and end with its exit code.

    It runs as the job does: its user, folders, variables and limits, and ends with its lease. What
    is piped in, it reads, 256 KiB at most. There is no terminal.
    """
    command = context.meta.get(COMMAND_KEY)
    if words or not command:
        raise InputError("give the command behind --: `leasehold exec JOB -- nvidia-smi`")
    service.wording = wording_of_exec(timeout_s="--timeout", rank="--rank", node="--node")
    asked: Any = {
        "command": command,
        "stdin": base64.b64encode(_piped()).decode(),
        "timeout_s": parse_span(timeout, name="--timeout"),
    }
    asked |= {"rank": rank} if rank is not None else {}
    asked |= {"node": node} if node is not None else {}
    begun = service.begin_exec(job, **asked)
    try:
        code = _follow(service, job, begun["exec_id"], as_json=as_json)
    except KeyboardInterrupt:
        _end(service, job, begun["exec_id"])
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    except BrokenPipeError:
        _end(service, job, begun["exec_id"])
        raise
    if code:
        raise typer.Exit(code)


def _piped() -> bytes:
    """Return the piped input.

    Raises:
        InputError: the input is too long.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    found = sys.stdin.buffer.read(MOST_STDIN + 1)
    if len(found) > MOST_STDIN:
        raise InputError(f"more than {MOST_STDIN} bytes are piped in, which is the most")
    return found


def _follow(service: ServiceClient, job: str, exec_id: str, *, as_json: bool) -> int:
    show = _lines_of_json() if as_json else _show
    after = 0
    while True:
        found = service.read_exec(job, exec_id, after=after, wait_s=_WAIT_S)
        for piece in found["pieces"]:
            show(piece["stream"], base64.b64decode(piece["data"]))
        after = found["next"]
        if found["done"]:
            if as_json:
                print_json_line({key: found[key] for key in ("exit_code", "problem")})
            elif found["problem"]:
                print_remark(plain_cell(found["problem"]))
            return exit_codes.NO_CODE if found["exit_code"] is None else found["exit_code"]


def _show(stream: str, data: bytes) -> None:
    to = sys.stdout if stream == "out" else sys.stderr
    to.buffer.write(data)
    to.buffer.flush()


def _lines_of_json() -> Callable[[str, bytes], None]:
    """Return a printer of pieces as JSON lines; a character may span two pieces."""
    made = codecs.getincrementaldecoder("utf-8")
    decoders: defaultdict[str, codecs.IncrementalDecoder] = defaultdict(
        lambda: made(errors="replace")
    )

    def show(stream: str, data: bytes) -> None:
        print_json_line({"stream": stream, "text": decoders[stream].decode(data)})

    return show


def _end(service: ServiceClient, job: str, exec_id: str) -> None:
    with contextlib.suppress(LeaseholdError):
        service.end_exec(job, exec_id)


_app = typer.Typer(add_completion=False)
_app.command("exec", cls=CommandBehindDashes)(execute)
command = typer.main.get_command(_app)
