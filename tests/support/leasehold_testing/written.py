"""Rewrite tables of the reference pages and the chart's copies: ``make written``.

A page holds a table between ``<!-- written: NAME -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import leasehold
from leasehold_testing import changes
from leasehold_testing.client_forms import document
from scheduler.domain.jobs.fields import Number, Word, Written
from scheduler.domain.jobs.spec import JOB_FIELDS
from scheduler.store.filters import FILTERS
from scheduler.views.history_kinds import EventKind, SubjectKind
from scheduler.views.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scheduler.domain.jobs.fields import Asked, Option

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
#: Longest line of a paragraph that is written.
_WIDTH: Final = 150


def job_fields() -> str:
    """Return the fields of a request to submit a job."""
    schema = document()["components"]["schemas"]["JobIn"]
    known = {field.name: field for field in JOB_FIELDS}
    lines = ["| field | meaning | default |", "|---|---|---|"]
    for name, told in schema["properties"].items():
        field = known.get(name)
        meaning = told["description"] + (field.page if field else "")
        lines.append(f"| `{name}` | {meaning} | {_usual(name, told, field, schema)} |")
    return "\n".join(lines)


def _usual(
    name: str, told: Mapping[str, Any], field: Asked | None, schema: Mapping[str, Any]
) -> str:
    if name in schema["required"]:
        return "**needed**"
    if field is not None and field.usual:
        return field.usual
    default = told.get("default")
    return "" if default in (None, [], {}) else f"`{json.dumps(default)}`"


def job_options() -> str:
    """Return the options of ``leasehold submit`` that describe a job."""
    short = ", ".join(f"`{field.short_name}`" for field in JOB_FIELDS if field.short_name)
    lines = [f"A file may write {short} as the options of these names do: `90m`, `8GiB`.", ""]
    lines += ["| option | meaning | default |", "|---|---|---|"]
    for field in JOB_FIELDS:
        option = field.option
        if option is not None:
            named = " ".join(filter(None, [field.flag, option.metavar or _value(field)]))
            short = f", `{option.short}`" if option.short else ""
            lines.append(f"| `{named}`{short} | {_sentence(option)} | {option.default} |")
    return "\n".join(lines)


def _sentence(option: Option) -> str:
    return option.page or option.help[0].lower() + option.help[1:].rstrip(".")


def _value(field: Asked) -> str:
    if field.kind is Word.FLAG:
        return ""
    if isinstance(field.kind, Number) and field.kind.written is Written.PLAIN:
        return "N" if field.kind.whole else "X"
    return "NAME"


def job_filters() -> str:
    """Return the filters of ``GET /v1/jobs``, column by column."""
    lines = ["| filter of `GET /v1/jobs` | passes | in a selector |", "|---|---|---|"]
    for known in FILTERS:
        often = ", any number of times" if known.most else ""
        lines.append(f"| `{known.name}`{often} | {known.help} | {known.selects or 'no'} |")
    return "\n".join(lines)


def filter_options() -> str:
    """Return the options of ``leasehold jobs`` that say which jobs are listed."""
    lines = ["| option | meaning |", "|---|---|"]
    for known in FILTERS:
        option = known.option
        short = f", `{option.short}`" if option.short else ""
        lines.append(f"| `{known.flag} {option.metavar or 'NAME'}`{short} | {_sentence(option)} |")
    named = ", ".join(f"`{known.name}=`" for known in FILTERS if known.selects)
    return "\n".join([*lines, "", f"A selector has {named} and `label.KEY=`."])


def event_kinds() -> str:
    """Return the kinds of events in the history."""
    kinds = ", ".join(f"`{kind}`" for kind in EventKind)
    subjects = ", ".join(f"`{kind}`" for kind in SubjectKind)
    text = f"Kinds of events: {kinds}.\nOf subjects: {subjects}. An unknown one is refused."
    return "\n".join(line for part in text.split("\n") for line in _wrapped(part))


def _wrapped(text: str) -> Iterator[str]:
    while len(text) > _WIDTH:
        cut = text.rindex(" ", 0, _WIDTH)
        yield text[:cut]
        text = text[cut + 1 :]
    yield text


def metrics() -> str:
    """Return the figures that the daemon reports."""
    lines = ["| metric | kind | labels | |", "|---|---|---|---|"]
    for figure in Metrics(process=False).described():
        labels = ", ".join(f"`{label}`" for label in figure.labels)
        lines.append(f"| `{figure.name}` | {figure.kind} | {labels} | {figure.page} |")
    return "\n".join(lines)


#: Page -> name of a table -> what writes it.
TABLES: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "reference/rest-api.md": {
        "job fields": job_fields,
        "filters of jobs": job_filters,
        "kinds of events": event_kinds,
    },
    "reference/cli.md": {"job options": job_options, "filters of jobs": filter_options},
    "how-to/monitor.md": {"metrics": metrics},
    "explanation/where-changes-go.md": {"changes": changes.table},
}


def rewritten(page: str, text: str) -> str:
    """Return a page with its tables as they should be.

    Raises:
        ValueError: it has no place for one of them.
    """
    for name, write in TABLES[page].items():
        begin, end = f"<!-- written: {name} -->\n", f"\n<!-- end of {name} -->"
        place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        table = f"{begin}\n{write()}\n{end}"
        text, found = place.subn(table.replace("\\", r"\\"), text)
        if found != 1:
            raise ValueError(f"{page} has {found} places for the table '{name}'; give it one")
    return text


#: Files that the chart copies, since helm reads no file outside of it: source and copy.
COPIES: Final = tuple(
    (
        Path(leasehold.__file__).parent / "monitoring" / name,
        DOCS.parent / "helm" / "leasehold" / "monitoring" / name,
    )
    for name in ("alerts.yaml", "dashboard.json")
)


def main() -> None:
    """Rewrite every table and copy."""
    for source, copy in COPIES:
        copy.write_bytes(source.read_bytes())
    for page in TABLES:
        file = DOCS / page
        file.write_text(rewritten(page, file.read_text()))


if __name__ == "__main__":
    main()
