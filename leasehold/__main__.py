"""Start the command line, even if another package called ``scheduler`` comes first.

``leasehold`` is the least common of the package names, so the entry point is here. It imports by
name, since this package must stay importable without the others.
"""

from __future__ import annotations

import importlib
import sys

from leasehold.distributions import SHARED, scheduler_folder


def main() -> int:
    """Run the command line and return its exit code."""
    root = str(scheduler_folder() or SHARED)
    sys.path.insert(0, root)  # this project's scheduler package comes first
    try:
        command_line = importlib.import_module("leasehold.cli.main")
    except KeyboardInterrupt:  # Ctrl-C before the command line can catch it
        return 130
    finally:
        sys.path.remove(root)
    code: int = command_line.main()
    return code


if __name__ == "__main__":
    sys.exit(main())
