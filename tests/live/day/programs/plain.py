"""A script that saves nothing: plain.py SECONDS. What ends it ends all that it did."""

from __future__ import annotations

import sys
import time

time.sleep(float(sys.argv[1]))
print("done", flush=True)
