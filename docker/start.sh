#!/bin/sh
# What the scheduler's image starts: hands numba the compiled loops, and becomes the program, so that
# this is process 1 and gets the signals.
[ -d "$NUMBA_CACHE_DIR" ] || cp -r /opt/leasehold/share/numba "$NUMBA_CACHE_DIR" || echo "compiled loops cannot be copied to $NUMBA_CACHE_DIR; they are compiled again" >&2
exec leasehold "$@"
