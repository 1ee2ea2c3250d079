"""``leasehold logs``: what a job prints."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scheduler.cli.service.client import job_path
from scheduler.cli.service.output import print_json_line, remark
from scheduler.cli.service.remote import Json, remote
from scheduler.cli.service.selection import (  # noqa: TC001 - typer reads them
    JobId,
)
from scheduler.cli.service.spec_files import parse_size
from scheduler.errors import AnswerError, InputError, NotFoundError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.cli.service.client import ServiceClient

#: Lines of JSON, one per piece of output; an empty line says that there is nothing new.
PIECES: Final = "application/x-ndjson"
#: The server says something at least every 15 s.
_SILENCE_S: Final = 45.0
_STREAM_NAMES: Final = {"out": "the standard output", "err": "the standard error"}


@remote
def logs(
    service: ServiceClient,
    job_id: JobId,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Which attempt; the newest by default.")
    ] = None,
    stream: Annotated[str, typer.Option("--stream", help="out, err or both.")] = "both",
    tail: Annotated[
        str | None,
        typer.Option("--tail", metavar="SIZE", help="Only the last bytes of each stream: 4K, 1M."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a job's output; what it wrote to its standard error goes to yours."""
    if stream not in {"out", "err", "both"}:
        raise InputError(f"--stream is '{stream}'; give out, err or both")
    tail_bytes = None if tail is None else parse_size(tail, name="--tail")
    reader = LogReader(service, job_id, attempt=attempt, stream=stream)
    printer = _Printer(as_json=as_json)
    pieces = reader.follow(tail_bytes) if follow else reader.read(tail_bytes)
    shown = 0
    for shown, piece in enumerate(pieces, start=1):  # noqa: B007 - counts
        printer.print(piece)
    if shown or attempt is None:
        return
    made = service.get(job_path(job_id, "/attempts"))["attempts"]
    if attempt not in {one["attempt"] for one in made}:
        raise NotFoundError(
            f"{job_id} has no attempt {attempt}; `leasehold job {job_id}` lists the attempts"
        )
    if not as_json:
        remark(
            f"no output of attempt {attempt} is kept; `leasehold job {job_id}` lists the attempts"
        )


class LogReader:
    """Reads a job's output, each byte once, however often the connection breaks.

    Args:
        service: where the job is.
        job_id: whose output.
        attempt: of the job; None for the newest and those that follow.
        stream: ``out``, ``err`` or ``both``.
    """

    def __init__(
        self, service: ServiceClient, job_id: str, *, attempt: int | None, stream: str
    ) -> None:
        self._service = service
        self._path = job_path(job_id, "/log")
        self._attempt = attempt
        self._stream = stream
        #: (attempt, node, stream) -> offset behind the last byte that was yielded.
        self._seen: dict[tuple[int, str, str], int] = {}
        self._ended = False
        #: whether only the end of what is kept was asked for last.
        self._tail = False

    def read(self, tail_bytes: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield what there is."""
        yield from self._open(self._attempt, tail_bytes, follow=False)

    def follow(self, tail_bytes: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield what there is and what comes, until the job has ended.

        Raises:
            UnreachableError: nobody answers at the first try.
            LeaseholdError: the server refuses.
        """
        failures = 0
        while not self._ended:
            try:
                if failures:
                    yield from self._rest()
                for piece in self._open(self._attempt, tail_bytes, follow=True):
                    failures = 0
                    yield piece
            except UnreachableError as error:
                if not self._seen and not failures:
                    raise
                if failures == 1:  # the second one in a row: more than a hiccup
                    remark(f"{error}; trying again until it is back (Ctrl-C ends)")
            if not self._ended:
                self._service.pause(failures)
                failures += 1
            tail_bytes = tail_bytes if not self._seen else None

    def _rest(self) -> Iterator[dict[str, Any]]:
        """Yield what the newest attempt seen wrote while the connection was away."""
        if self._seen and self._attempt is None:
            yield from self._open(max(key[0] for key in self._seen), None, follow=False)

    def _open(
        self, attempt: int | None, tail_bytes: int | None, *, follow: bool
    ) -> Iterator[dict[str, Any]]:
        self._tail = tail_bytes is not None
        params = {
            "stream": self._stream,
            "attempt": attempt,
            "tail_bytes": tail_bytes,
            "follow": follow or None,
        }
        with self._service.stream(
            self._path, params=params, headers={"Accept": PIECES}, read_timeout_s=_SILENCE_S
        ) as response:
            if not response.headers.get("Content-Type", "").startswith(PIECES):
                raise AnswerError(f"{response.url} answered with no pieces of a log")
            for line in response.iter_lines():
                if line and (piece := self._fresh(_piece(line), follow=follow)):
                    yield piece

    def _fresh(self, piece: dict[str, Any], *, follow: bool) -> dict[str, Any] | None:
        """Cut off what was yielded before."""
        if piece.get("end"):
            self._ended = self._ended or follow
            return None
        key = (piece["attempt"], piece["node"], piece["stream"])
        seen, data = self._seen.get(key, 0), base64.b64decode(piece["data"])
        # What lies between is gone, unless only the tail was wanted and begins within what is kept.
        tail = self._tail and key not in self._seen and piece["offset"] > piece.get("kept_from", 0)
        dropped = 0 if tail else max(piece["offset"] - seen, 0)
        end = piece["offset"] + len(data)
        self._seen[key] = max(seen, end)
        if end <= seen:
            return None
        cut = max(seen - piece["offset"], 0)
        known = {name: piece[name] for name in ("attempt", "node", "stream")}
        return known | {"offset": piece["offset"] + cut, "dropped": dropped, "data": data[cut:]}


class _Printer:
    """Writes pieces of output as they are; a heading stands where the node or attempt changes."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._last: tuple[Any, ...] | None = None

    def print(self, piece: dict[str, Any]) -> None:
        """Write a piece."""
        if self._as_json:
            text = piece["data"].decode("utf-8", errors="replace")
            print_json_line({k: v for k, v in piece.items() if k != "data"} | {"text": text})
            return
        source = (piece["attempt"], piece["node"])
        if self._last is not None and source != self._last:
            remark(f"attempt {piece['attempt']} on {piece['node']}")
        self._last = source
        if piece["dropped"]:
            remark(
                f"{piece['dropped']:,} bytes of {_STREAM_NAMES[piece['stream']]} of attempt "
                f"{piece['attempt']} on {piece['node']} are not kept any more"
            )
        target = sys.stderr if piece["stream"] == "err" else sys.stdout
        target.flush()
        target.buffer.write(piece["data"])
        target.buffer.flush()


def _piece(line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        raise AnswerError(f"a piece of the log is no JSON object: {line[:80]!r}") from None
