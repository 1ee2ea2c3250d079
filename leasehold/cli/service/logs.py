"""``leasehold logs``: a job's output."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from leasehold.cli import exit_codes
from leasehold.cli.display.output import plain_cell, print_json_line, print_remark
from leasehold.cli.jobspec.selection import (  # noqa: TC001 - typer reads them
    JobId,
)
from leasehold.cli.session.remote import Json, remote
from leasehold.client.streams import LogEnd
from scheduler.errors import InputError, LeaseholdError, NotFoundError
from scheduler.logs.terminal_text import TerminalText
from scheduler.views.job_documents import parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold.cli.session.client import ServiceClient
    from leasehold.client.forms import Attempt
    from leasehold.client.streams import LogPiece

#: Most lines about missing output.
_MOST_REMARKS: Final = 10
_STREAM_NAMES: Final = {"out": "the standard output", "err": "the standard error"}
Raw: TypeAlias = Annotated[
    bool, typer.Option("--raw", help="Let a job's control sequences act on the terminal, too.")
]


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
    raw: Raw = False,
    as_json: Json = False,
) -> None:
    """Print a job's output, all attempts; its standard error goes to yours.

    A terminal gets text and colours; a file or a pipe every byte as it is.
    """
    if stream not in {"out", "err", "both"}:
        raise InputError(f"--stream is '{stream}'; give out, err or both")
    tail_bytes = None if tail is None else parse_size(tail, name="--tail")
    job_id = service.job(job_id)["job_id"]
    attempts = Attempts(service, job_id)
    attempts.ask()
    if attempt is not None and attempts.type_of(attempt) is None:
        raise NotFoundError(
            f"{job_id} has no attempt {attempt}; `leasehold job {job_id}` lists the attempts"
        )
    pieces = service.log_pieces(
        job_id, attempt=attempt, stream=stream, follow=follow, tail_bytes=tail_bytes
    )
    marked = attempt is None and len(attempts) > 1
    printer = Printer(attempts, as_json=as_json, marked=marked, raw=raw)
    end = printer.print_all(pieces)
    if not (printer.shown or as_json or end.missing):
        _tell_nothing(attempts, job_id, attempt)
    tell_end(end, follow=follow, job_id=job_id)
    if follow and end.complete is False:
        raise typer.Exit(exit_codes.FAILED)


def _tell_nothing(attempts: Attempts, job_id: str, attempt: int | None) -> None:
    """Print why there is no output: no attempt has run, or how the silent attempt ended."""
    attempts.look_again()  # an attempt may have begun and ended since
    if not len(attempts):
        print_remark(f"{job_id} has not run yet; `leasehold explain {job_id}` says why")
        return
    told = attempts.end_of(attempt)
    if told:
        print_remark(f"{told}; `leasehold explain {job_id}` says more")
    elif attempt is not None:
        print_remark(
            f"no output of attempt {attempt} is kept; `leasehold job {job_id}` lists the attempts"
        )


def tell_end(end: LogEnd, *, follow: bool, job_id: str) -> None:
    """Print which output of an ended job is missing."""
    streams: dict[tuple[int, str, bool], list[str]] = {}
    for gap in end.missing:
        origin = gap["attempt"], gap["node"], gap["told"]
        streams.setdefault(origin, []).append(_STREAM_NAMES[gap["stream"]])
    for (attempt, node, told), names in list(streams.items())[:_MOST_REMARKS]:
        what = f"{' and '.join(names)} of attempt {attempt} on {node}"
        if told and follow:
            print_remark(f"the end of {what} is missing: the agent there has not sent it")
        elif told:
            print_remark(
                f"the end of {what} is not here yet; `leasehold logs -f {job_id}` waits for it"
            )
        elif follow:
            print_remark(
                f"it is unknown whether {what} is complete: its agent is of an older release"
            )
    if len(streams) > _MOST_REMARKS:
        print_remark(f"and of {len(streams) - _MOST_REMARKS} more")


class Attempts:
    """A job's known attempts; requested again when there is a new one."""

    def __init__(self, service: ServiceClient, job_id: str) -> None:
        self._service = service
        self._job_id = job_id
        self._made: dict[int, Attempt] = {}

    def __len__(self) -> int:
        return len(self._made)

    def type_of(self, attempt: int) -> str | None:
        """Return an attempt's worker type; empty if it has several types, None if unknown."""
        if attempt not in self._made:
            self.look_again()  # a heading is not worth an error
        made = self._made.get(attempt)
        return None if made is None else made["worker_type"]

    def look_again(self) -> None:
        """Request the attempts again; keep the known ones if no scheduler answers."""
        with contextlib.suppress(LeaseholdError):
            self.ask()

    def end_of(self, attempt: int | None) -> str:
        """Return how an attempt (by default the newest) ended; empty if it ended well."""
        made = self._made[max(self._made) if attempt is None else attempt]
        said = plain_cell(made["message"])
        if made["end_reason"] in {None, "completed"} or not said:
            return ""
        ended = f"attempt {made['attempt']} ended as {made['end_reason']}: {said}"
        return f"there is no output; {ended}"

    def ask(self) -> None:
        """Request the attempts."""
        self._made = {one["attempt"]: one for one in self._service.attempts(self._job_id)}


class Printer:
    """Writes pieces of output unchanged, with a heading when the node or attempt changes.

    Args:
        attempts: for the worker types in headings.
        as_json: write a line of JSON per piece instead.
        marked: whether the first piece has a heading too.
        raw: whether control sequences reach a terminal.

    Attributes:
        shown: (attempt, node, stream) -> offset after the last written byte.
    """

    def __init__(self, attempts: Attempts, *, as_json: bool, marked: bool, raw: bool) -> None:
        self._attempts = attempts
        self._as_json = as_json
        self._marked = marked
        self._raw = raw
        self.shown: dict[tuple[int, str, str], int] = {}
        #: (attempt, node, stream) -> its text, if a terminal shows it.
        self._texts: defaultdict[tuple[int, str, str], TerminalText] = defaultdict(TerminalText)
        self._last: tuple[Any, ...] | None = None

    def print_all(self, pieces: Iterable[LogPiece | LogEnd]) -> LogEnd:
        """Write pieces, and return the information about their end."""
        found = LogEnd(complete=None, missing=())
        try:
            for piece in pieces:
                if isinstance(piece, LogEnd):
                    found = piece
                    continue
                place = (piece["attempt"], piece["node"], piece["stream"])
                behind = piece["offset"] + len(piece["data"])
                try:
                    self._print(piece)
                finally:  # a piece that Ctrl-C interrupts is written, or in the buffer
                    self.shown[place] = behind
        finally:
            self._end()
        return found

    def _print(self, piece: LogPiece) -> None:
        if self._as_json:
            text = piece["data"].decode("utf-8", errors="replace")
            print_json_line({k: v for k, v in piece.items() if k != "data"} | {"text": text})
            return
        source = (piece["attempt"], piece["node"])
        if source != self._last and (self._last is not None or self._marked):
            kind = self._attempts.type_of(piece["attempt"])
            on = f" ({plain_cell(kind)})" if kind else ""
            print_remark(f"attempt {piece['attempt']} on {piece['node']}{on}")
        self._last = source
        if piece["dropped"]:
            print_remark(
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

    def _end(self) -> None:
        """Write the held-back text of pieces, and the end of their colours."""
        for (_, _, stream), text in self._texts.items():
            target = sys.stderr if stream == "err" else sys.stdout
            target.flush()
            target.buffer.write(text.end().encode("utf-8", "replace"))
            target.buffer.flush()
