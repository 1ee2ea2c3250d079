# ruff: noqa: INP001 - a script of the image
"""Print what a pyproject.toml depends on, a line each; the image installs it before the sources."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
sys.stdout.writelines(f"{requirement}\n" for requirement in project["dependencies"])
