"""Find the scheduler's address and the token, as ``leasehold.connection`` does."""

from __future__ import annotations

from leasehold import connection
from leasehold.connection import DEFAULT_SERVER, Connection, state_dir
from scheduler.errors import InputError

__all__ = ["DEFAULT_SERVER", "Connection", "find_connection", "state_dir"]


def find_connection(
    *, server: str | None = None, token_file: str | None = None, ca_file: str | None = None
) -> Connection:
    """Combine flags, environment and files.

    Args:
        server: value of ``--server``.
        token_file: value of ``--token-file``.
        ca_file: value of ``--ca-file``.

    Raises:
        InputError: an address, a file or a key in ``client.toml`` cannot be used.
    """
    try:
        return connection.find_connection(server=server, token_file=token_file, ca_file=ca_file)
    except connection.SettingsError as error:
        raise InputError(str(error)) from None
