"""The table of the chart's README, made from the comments of values.yaml.

python tests/chart/values_table.py    writes it again
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parents[2] / "helm" / "leasehold"
README = CHART / "README.md"
BEGIN, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"
_KEY = re.compile(r"( *)([A-Za-z]+):( .*)?$")


def explained(text):
    """Yield (dotted name, explanation) of every key under a comment that begins with ``# --``."""
    path, words = [], None
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            words = stripped.removeprefix("# -- ")
        elif stripped.startswith("#") and words:
            words += " " + stripped.removeprefix("# ")
        elif key := _KEY.match(line):
            depth = len(key[1]) // 2
            path = [*path[:depth], key[2]]
            if words:
                yield ".".join(path), words
            words = None
        else:
            words = None


def leaves(values, before=""):
    """Yield the dotted names of values that are no map, or an empty one."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def table():
    """Return the table."""
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    lines = ["| value | default | |", "|---|---|---|"]
    for name, words in explained(text):
        value = values
        for part in name.split("."):
            value = value[part]
        lines.append(f"| `{name}` | `{json.dumps(value)}` | {words.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def page():
    """Return the README with the table as it should be."""
    head, _, rest = README.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    README.write_text(page())
