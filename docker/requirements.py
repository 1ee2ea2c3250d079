# ruff: noqa: INP001 - a script of the image
"""Print what a pyproject.toml depends on with all extras; the image installs it before the rest."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
wanted = [*project["dependencies"], *(one for name in extras for one in extras[name])]
own = f"{project['name']}["  # an extra that is made of others
found = dict.fromkeys(one for one in wanted if not one.startswith(own))
sys.stdout.writelines(f"{requirement}\n" for requirement in found)
