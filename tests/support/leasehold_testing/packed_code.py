"""Code as people upload it: a packed tree of some size."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import random
import tarfile


def packed_code(size: int = 10, *, seed: int = 0) -> tuple[str, dict[str, str]]:
    """Return the hash of a tree with one file, and the request that uploads it.

    Args:
        size: bytes of the file, which cannot be compressed.
        seed: of the bytes.
    """
    outside = io.BytesIO()
    member = tarfile.TarInfo("train.py")
    member.size = size
    with tarfile.open(fileobj=outside, mode="w") as archive:
        archive.addfile(member, io.BytesIO(random.Random(seed).randbytes(size)))
    packed = gzip.compress(outside.getvalue(), mtime=0)
    return hashlib.sha256(packed).hexdigest(), {"archive": base64.b64encode(packed).decode()}
