"""``leasehold logs``: what a job prints."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli import exit_codes
from leasehold.cli.service.client import job_path
from leasehold.cli.service.naming import find_job
from leasehold.cli.service.outages import Outage
from leasehold.cli.service.output import plain, print_json_line, remark
from leasehold.cli.service.remote import Json, remote
from leasehold.cli.service.selection import (  # noqa: TC001 - typer reads them
    JobId,
)
from leasehold.cli.service.spec_files import parse_size
from leasehold.cli.service.terminal import TerminalText
from scheduler.errors import (
    AnswerError,
    InputError,
    LeaseholdError,
    NotFoundError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.cli.service.client import ServiceClient

#: Lines of JSON, one per piece of output; an empty line says that there is nothing new.
PIECES: Final = "application/x-ndjson"
#: The server says something at least every 15 s.
_SILENCE_S: Final = 45.0
#: Streams whose offsets are told when a connection is opened again: addresses have their limits.
_MOST_PLACES: Final = 40
#: Lines about what is missing.
_MOST_REMARKS: Final = 10
_STREAM_NAMES: Final = {"out": "the standard output", "err": "the standard error"}


@remote
def logs(
    service: ServiceClient,
    job_id: JobId,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended and all is here.")
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
    job_id = find_job(service, job_id)
    attempts = _Attempts(service, job_id)
    if attempt is not None and attempts.type_of(attempt) is None:
        raise NotFoundError(
            f"{job_id} has no attempt {attempt}; `leasehold job {job_id}` lists the attempts"
        )
    reader = LogReader(service, job_id, attempt=attempt, stream=stream, follow=follow)
    marked = attempt is None and len(attempts) > 1
    printer = _Printer(attempts, as_json=as_json, marked=marked, raw=raw)
    shown = 0
    try:
        for shown, piece in enumerate(reader.pieces(tail_bytes), start=1):  # noqa: B007 - counts
            printer.print(piece)
    finally:
        printer.end()
    said = reader.end.get("complete") or reader.end.get("missing")
    if not shown and attempt is not None and not as_json and not said:
        remark(
            f"no output of attempt {attempt} is kept; `leasehold job {job_id}` lists the attempts"
        )
    _tell_end(reader.end, follow=follow, job_id=job_id)
    if follow and reader.end.get("complete") is False:
        raise typer.Exit(exit_codes.FAILED)


def _tell_end(end: dict[str, Any], *, follow: bool, job_id: str) -> None:
    """Say what is missing of a job that has ended."""
    streams: dict[tuple[int, str, bool], list[str]] = {}
    for gap in end.get("missing") or ():
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
        self._path = job_path(job_id, "/attempts")
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
        made = self._service.get(self._path)["attempts"]
        return {one["attempt"]: one["worker_type"] for one in made}


class LogReader:
    """Reads a job's output, each byte once, however often the connection breaks.

    Args:
        service: where the job is.
        job_id: whose output.
        attempt: of the job; None for all, or, where only a tail is wanted, the newest and later.
        stream: ``out``, ``err`` or ``both``.
        follow: go on until the job has ended and its output is whole.
    """

    def __init__(
        self,
        service: ServiceClient,
        job_id: str,
        *,
        attempt: int | None,
        stream: str,
        follow: bool,
    ) -> None:
        #: what the server said at the end: whether that is all, and what is missing.
        self.end: dict[str, Any] = {}
        self._service = service
        self._path = job_path(job_id, "/log")
        self._attempt = attempt
        self._stream = stream
        self._follow = follow
        #: (attempt, node, stream) -> offset behind the last byte that was yielded.
        self._seen: dict[tuple[int, str, str], int] = {}
        #: whether only the end of what is kept was asked for last.
        self._tail = False

    def pieces(self, tail_bytes: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield what there is and, if wanted, what comes.

        Raises:
            LeaseholdError: the server refuses; or, unless followed, is away for too long.
        """
        patience = self._service.patience
        outage = Outage(self._service, most_s=None if self._follow else patience.busy_s)
        newest = tail_bytes is not None
        while not self.end:
            failure: UnreachableError | None = None
            try:
                for i, piece in enumerate(self._open(tail_bytes, newest=newest)):
                    if piece or i:  # the first line comes of any server, and says nothing
                        outage.over()
                    if piece:
                        yield piece
            except UnreachableError as error:
                failure = error
            if not self.end:
                outage.wait(failure)
            tail_bytes = None if self._seen else tail_bytes

    def _open(self, tail_bytes: int | None, *, newest: bool) -> Iterator[dict[str, Any] | None]:
        """Yield pieces, and None where the server says that there is nothing new."""
        self._tail = tail_bytes is not None
        params = {
            "stream": self._stream,
            "attempt": self._attempt,
            "attempts": None if newest or self._attempt is not None else "all",
            "tail_bytes": tail_bytes,
            "follow": self._follow or None,
            "since": self._places(),
        }
        with self._service.stream(
            self._path, params=params, headers={"Accept": PIECES}, read_timeout_s=_SILENCE_S
        ) as response:
            if not response.headers.get("Content-Type", "").startswith(PIECES):
                raise AnswerError(f"{response.url} answered with no pieces of a log")
            for line in response.iter_lines():
                yield self._fresh(_piece(line)) if line else None

    def _places(self) -> list[str]:
        """Return how far the newest streams are known; older ones are sent again and cut off."""
        newest = sorted(self._seen, reverse=True)[:_MOST_PLACES]
        return [
            f"{number}/{node}/{name}/{self._seen[number, node, name]}"
            for number, node, name in newest
        ]

    def _fresh(self, piece: dict[str, Any]) -> dict[str, Any] | None:
        """Cut off what was yielded before."""
        if piece.get("end"):
            self.end = piece
            return None
        key = (piece["attempt"], piece["node"], piece["stream"])
        seen, data = self._seen.get(key, 0), base64.b64decode(piece["data"])
        # What lies between is gone, unless only the tail was wanted and begins within what is kept.
        tail = self._tail and key not in self._seen and piece["offset"] > piece.get("kept_from", 0)
        dropped = 0 if tail else max(piece["offset"] - seen, 0)
        end = piece["offset"] + len(data)
        if end <= seen or not data:
            if tail:  # an empty piece that tells where the tail begins
                self._seen[key] = end
            return None
        self._seen[key] = end
        cut = max(seen - piece["offset"], 0)
        known = {name: piece[name] for name in ("attempt", "node", "stream")}
        return known | {"offset": piece["offset"] + cut, "dropped": dropped, "data": data[cut:]}


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

    def print(self, piece: dict[str, Any]) -> None:
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
            text = self._texts[*source, piece["stream"]]
            data = text.feed(data).encode("utf-8", "replace")
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


def _piece(line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        raise AnswerError(f"a piece of the log is no JSON object: {line[:80]!r}") from None
