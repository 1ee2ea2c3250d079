"""Start the command line, even where another package called ``scheduler`` comes first.

``leasehold`` is the least common of our names, so the way in starts here. The import is by name:
this package must stay importable without the rest.
"""

from __future__ import annotations

import importlib
import sys

from leasehold.distributions import SHARED, scheduler_folder


def main() -> int:
    """Run the command line and return its exit code."""
    root = str(scheduler_folder() or SHARED)
    sys.path.insert(0, root)  # our own scheduler package, whatever else is installed
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
