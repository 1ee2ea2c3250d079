"""``leasehold logs``: what a job prints."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli import exit_codes
from leasehold.cli.service.output import plain, print_json_line, remark
from leasehold.cli.service.remote import Json, remote
from leasehold.cli.service.selection import (  # noqa: TC001 - typer reads them
    JobId,
)
from leasehold.cli.service.spec_files import parse_size
from leasehold.cli.service.terminal import TerminalText
from leasehold.client.streams import LogEnd
from scheduler.errors import InputError, LeaseholdError, NotFoundError

if TYPE_CHECKING:
    from leasehold.cli.service.client import ServiceClient
    from leasehold.client.streams import LogPiece

#: Lines about what is missing.
_MOST_REMARKS: Final = 10
_STREAM_NAMES: Final = {"out": "the standard output", "err": "the standard error"}


@remote
def logs(
    service: ServiceClient,
    job_id: JobId,
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Follow until the job has ended."),
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Only this attempt; all by default.")
    ] = None,
    stream: Annotated[str, typer.Option("--stream", help="out, err or both.")] = "both",
    tail: Annotated[
        str | None,
        typer.Option(
            "--tail",
            metavar="SIZE",
            help="Of the newest attempt, the last bytes of each stream: 4K, 1M.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Let a job's control sequences act on the terminal, too."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a job's output, all attempts; what it wrote to its standard error goes to yours.

    A terminal gets text and colours; a file or a pipe every byte as it is.
    """
    if stream not in {"out", "err", "both"}:
        raise InputError(f"--stream is '{stream}'; give out, err or both")
    tail_bytes = None if tail is None else parse_size(tail, name="--tail")
    job_id = service.job(job_id)["job_id"]
    attempts = _Attempts(service, job_id)
    if attempt is not None and attempts.type_of(attempt) is None:
        raise NotFoundError(
            f"{job_id} has no attempt {attempt}; `leasehold job {job_id}` lists the attempts"
        )
    pieces = service.log_pieces(
        job_id, attempt=attempt, stream=stream, follow=follow, tail_bytes=tail_bytes
    )
    marked = attempt is None and len(attempts) > 1
    printer = _Printer(attempts, as_json=as_json, marked=marked, raw=raw)
    shown, end = 0, LogEnd(complete=None, missing=())
    try:
        for piece in pieces:
            if isinstance(piece, LogEnd):
                end = piece
                continue
            printer.print(piece)
            shown += 1
    finally:
        printer.end()
    if not (shown or attempt is None or as_json or end.complete or end.missing):
        remark(
            f"no output of attempt {attempt} is kept; `leasehold job {job_id}` lists the attempts"
        )
    _tell_end(end, follow=follow, job_id=job_id)
    if follow and end.complete is False:
        raise typer.Exit(exit_codes.FAILED)


def _tell_end(end: LogEnd, *, follow: bool, job_id: str) -> None:
    """Say what is missing of a job that has ended."""
    streams: dict[tuple[int, str, bool], list[str]] = {}
    for gap in end.missing:
        origin = gap["attempt"], gap["node"], gap["told"]
        streams.setdefault(origin, []).append(_STREAM_NAMES[gap["stream"]])
    for (attempt, node, told), names in list(streams.items())[:_MOST_REMARKS]:
        what = f"{' and '.join(names)} of attempt {attempt} on {node}"
        if told and follow:
            remark(f"the end of {what} is missing: the agent there has not sent it")
        elif told:
            remark(f"the end of {what} is not here yet; `leasehold logs -f {job_id}` waits for it")
        elif follow:
            remark(
                f"whether {what} is whole is not known: the agent there does not tell (an older "
                "release does not)"
            )
    if len(streams) > _MOST_REMARKS:
        remark(f"and of {len(streams) - _MOST_REMARKS} more")


class _Attempts:
    """A job's attempts, as far as they are known; asked for anew when there is another one."""

    def __init__(self, service: ServiceClient, job_id: str) -> None:
        self._service = service
        self._job_id = job_id
        self._types = self._ask()

    def __len__(self) -> int:
        return len(self._types)

    def type_of(self, attempt: int) -> str | None:
        """Return what an attempt ran on; empty where it is of several types, None if unknown."""
        if attempt not in self._types:
            with contextlib.suppress(LeaseholdError):  # a heading is not worth more
                self._types = self._ask()
        return self._types.get(attempt)

    def _ask(self) -> dict[int, str]:
        made = self._service.attempts(self._job_id)
        return {one["attempt"]: one["worker_type"] for one in made}


class _Printer:
    """Writes pieces of output as they are; a heading stands where the node or attempt changes.

    Args:
        attempts: what they ran on.
        as_json: write a line of JSON per piece instead.
        marked: whether a heading stands before the first piece, too.
        raw: whether control sequences reach a terminal.
    """

    def __init__(self, attempts: _Attempts, *, as_json: bool, marked: bool, raw: bool) -> None:
        self._attempts = attempts
        self._as_json = as_json
        self._marked = marked
        self._raw = raw
        #: (attempt, node, stream) -> its text, where a terminal shows it.
        self._texts: defaultdict[tuple[int, str, str], TerminalText] = defaultdict(TerminalText)
        self._last: tuple[Any, ...] | None = None

    def print(self, piece: LogPiece) -> None:
        """Write a piece."""
        if self._as_json:
            text = piece["data"].decode("utf-8", errors="replace")
            print_json_line({k: v for k, v in piece.items() if k != "data"} | {"text": text})
            return
        source = (piece["attempt"], piece["node"])
        if source != self._last and (self._last is not None or self._marked):
            kind = self._attempts.type_of(piece["attempt"])
            on = f" ({plain(kind)})" if kind else ""
            remark(f"attempt {piece['attempt']} on {piece['node']}{on}")
        self._last = source
        if piece["dropped"]:
            remark(
                f"{piece['dropped']:,} bytes of {_STREAM_NAMES[piece['stream']]} of attempt "
                f"{piece['attempt']} on {piece['node']} are not kept any more"
            )
        target = sys.stderr if piece["stream"] == "err" else sys.stdout
        data = piece["data"]
        if target.isatty() and not self._raw:
            shown = self._texts[*source, piece["stream"]]
            data = shown.feed(data).encode("utf-8", "replace")
        target.flush()
        target.buffer.write(data)
        target.buffer.flush()

    def end(self) -> None:
        """Write what pieces ended with, and the end of their colours."""
        for (_, _, stream), text in self._texts.items():
            target = sys.stderr if stream == "err" else sys.stdout
            target.flush()
            target.buffer.write(text.end().encode("utf-8", "replace"))
            target.buffer.flush()
