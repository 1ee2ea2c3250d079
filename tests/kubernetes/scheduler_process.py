"""A scheduler of the tests: ``leasehold serve`` with its pod's credentials in another folder.

Takes that folder, and then arguments of the command line. In a pod it is always the same folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from leasehold.__main__ import main
from leasehold.daemon.token_review import TokenReviewer

if __name__ == "__main__":
    TokenReviewer.__init__.__kwdefaults__["credentials"] = Path(sys.argv.pop(1))
    sys.exit(main())
