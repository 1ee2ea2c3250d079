"""Microsoft's public workloads without job types: Philly (2017) and ITP (2021).

Philly: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
(USENIX ATC 2019), in the CSV form with one row per job. ITP: ten clusters, one file each.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from traces.files import Line
from traces.formats import TraceFormat
from traces.readers.header_csv import HeaderCsv, columns_of
from traces.trace import ParsedTrace, TraceJob

PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus")
ITP_COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")


def parse_philly(text: str, *, path: str) -> ParsedTrace:
    """Read Philly's jobs. The column ``cluster`` (a virtual cluster) becomes the entity.

    Raises:
        TraceError: the file is malformed.
    """
    table = HeaderCsv.parse(text, path=path)
    at = table.require(PHILLY_COLUMNS)
    when, how_long, size = (at[column] for column in PHILLY_COLUMNS)
    entity = at.get("cluster")
    jobs = []
    for number, fields in table.rows:
        line = Line(path, number)
        job = TraceJob(
            line=number,
            arrival_s=_timestamp(fields[when], line),
            duration_s=line.number_in(fields[how_long], "duration", above=0.0),
            scale_factors=(line.integer_in(fields[size], "num_gpus", at_least=1),),
            entity="" if entity is None else fields[entity],
        )
        jobs.append(job)
    return ParsedTrace(jobs=jobs, relative=True, size_field="num_gpus")


def parse_itp(text: str, *, path: str) -> ParsedTrace:
    """Read the jobs of one of ITP's clusters.

    Raises:
        TraceError: the file is malformed.
    """
    table = HeaderCsv.parse(text, path=path)
    at = table.require(ITP_COLUMNS)
    name, when, how_long, size = (at[column] for column in ITP_COLUMNS)
    jobs = []
    for number, fields in table.rows:
        line = Line(path, number)
        job = TraceJob(
            line=number,
            job_id=fields[name],
            arrival_s=line.number_in(fields[when], "submission_time"),
            duration_s=line.number_in(fields[how_long], "duration", above=0.0),
            scale_factors=(line.integer_in(fields[size], "num_gpu", at_least=1),),
        )
        jobs.append(job)
    return ParsedTrace(jobs=jobs, relative=True, size_field="num_gpu")


def _timestamp(text: str, line: Line) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        problem = "this is not a date and time; give one such as 2017-10-09 07:01:55"
        line.fail(problem, field="timestamp", value=text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


PHILLY: Final = TraceFormat(
    parse=parse_philly,
    starts=lambda line: columns_of(line).issuperset(PHILLY_COLUMNS),
    shape=f"a CSV with the columns {', '.join(PHILLY_COLUMNS)}",
)
ITP: Final = TraceFormat(
    parse=parse_itp,
    starts=lambda line: columns_of(line).issuperset(ITP_COLUMNS),
    shape=f"a CSV with the columns {', '.join(ITP_COLUMNS)}",
)
