"""The keys of secret variables, from the configuration."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.errors import InputError
from scheduler.secret_box import KeyFile, SecretBox, parse_keys

if TYPE_CHECKING:
    from leasehold.config.settings import ServerConfig

_log = logging.getLogger("leasehold.daemon")


def secret_box(config: ServerConfig) -> SecretBox:
    """Return the box that encrypts the secret variables of jobs; without a key it refuses them.

    A missing key file is logged and does not stop the daemon: other jobs need no key.

    Raises:
        InputError: a key is malformed, or keys are given in both ways.
    """
    given = config.secrets
    if given.keys is not None and given.key_file is not None:
        raise InputError("secrets.keys and secrets.key_file are both set; give one of them")
    if given.keys is not None:
        keys = parse_keys(given.keys, where="secrets.keys")
        return SecretBox(lambda: keys, where="secrets.keys")
    if given.key_file is None:
        return SecretBox()
    path = Path(given.key_file).expanduser()
    box = SecretBox(KeyFile(path), where=f"{path}, the setting secrets.key_file")
    if not box.can_seal:
        _log.error(
            "there is no key in %s (secrets.key_file): jobs with secret_env are refused; put the "
            "file back, or make one: leasehold secrets new-key %s",
            path,
            path,
        )
    elif path.stat().st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        _log.warning("other users of this machine may read or change the keys in %s", path)
    return box
