# ruff: noqa: INP001 - a script of the image
"""Print what a pyproject.toml depends on with the extra ``all``; the image installs it first."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
named = re.fullmatch(r".*\[(.*)\]", extras["all"][0])[1].split(",")
wanted = [*project["dependencies"], *(one for name in named for one in extras[name])]
sys.stdout.writelines(f"{requirement}\n" for requirement in dict.fromkeys(wanted))
