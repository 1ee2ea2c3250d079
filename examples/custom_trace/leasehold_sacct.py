"""A trace format of one's own: what ``sacct -P -o Submit,ElapsedRaw,AllocTRES`` prints."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from traces.files import Line
from traces.formats import TraceFormat
from traces.trace import ParsedTrace, TraceJob

HEADER = "Submit|ElapsedRaw|AllocTRES"


def parse(text: str, *, path: str) -> ParsedTrace:
    """Read the jobs that had GPUs."""
    jobs = []
    for number, row in enumerate(text.splitlines()[1:], 2):
        line, fields = Line(path, number), row.split("|")
        line.columns(fields, 3, "the header")
        submitted, elapsed, resources = fields
        gpus = re.search(r"gres/gpu=(\d+)", resources)
        if gpus is None:
            continue
        try:
            moment = datetime.fromisoformat(submitted).replace(tzinfo=UTC)
        except ValueError:
            line.fail("this is not a date and time", field="Submit", value=submitted)
        job = TraceJob(
            line=number,
            arrival_s=moment.timestamp(),
            duration_s=line.number_in(elapsed, "ElapsedRaw", above=0.0),
            scale_factors=(line.integer_in(gpus[1], "AllocTRES", at_least=1),),
        )
        jobs.append(job)
    return ParsedTrace(jobs=jobs, relative=True, size_field="AllocTRES")


SACCT = TraceFormat(
    parse=parse,
    starts=lambda line: line.strip() == HEADER,
    shape=f"sacct's columns {HEADER}",
)
