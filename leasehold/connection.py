"""Find the scheduler's address and the token.

The command line and ``Client`` look in the same places.

The server: ``--server``, ``LEASEHOLD_SERVER``, ``client.toml``, else the one that this user runs on
this machine. The token: ``--token-file``, ``LEASEHOLD_TOKEN``, ``client.toml``, else the one that a
scheduler on this machine left for its first administrator. A token that is configured for one
server is never sent to another server.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Default address of a scheduler on this machine.
DEFAULT_SERVER: Final = "http://127.0.0.1:8642"
_KEYS: Final = ("server", "token", "token_file", "ca_file")
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class SettingsError(ValueError):
    """An address, a token or a file that says how to reach the scheduler cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The scheduler's address and credentials.

    Attributes:
        server: base address without a trailing slash.
        token: bearer token; empty for none.
        ca_file: certificates to trust; empty for the system's.
        origin: source of the address, for messages.
        others: addresses of its standbys, which are asked if the first does not answer.
    """

    server: str
    token: str = field(default="", repr=False)
    ca_file: str = ""
    origin: str = "default"
    others: tuple[str, ...] = ()

    @property
    def servers(self) -> tuple[str, ...]:
        """All addresses, the one in use first."""
        return (self.server, *self.others)

    def to_next(self) -> Connection:
        """Return the connection with the next address in use."""
        server, *others = *self.others, self.server
        return replace(self, server=server, others=tuple(others))


def find_connection(
    *,
    server: str | None = None,
    token_file: str | None = None,
    ca_file: str | None = None,
    environment: Mapping[str, str] | None = None,
    server_origin: str = "--server",
) -> Connection:
    """Combine flags, environment and files.

    Args:
        server: value of ``--server``, or a program's argument; several are separated by spaces.
        token_file: value of ``--token-file``.
        ca_file: value of ``--ca-file``.
        environment: ``os.environ`` by default.
        server_origin: the user's name for ``server``, for messages.

    Raises:
        SettingsError: an address, a file or a key in ``client.toml`` cannot be used.
    """
    env = os.environ if environment is None else environment
    config = _read_config(env)
    named = (
        (server, server_origin),
        (env.get("LEASEHOLD_SERVER"), "LEASEHOLD_SERVER"),
        (config.get("server"), str(config_path(env))),
        (local := _local_server(env), str(state_dir(env))),
    )
    address, origin = next(((a, o) for a, o in named if a), (DEFAULT_SERVER, "default"))
    servers = tuple(dict.fromkeys(_checked(one, origin) for one in address.split() or [""]))
    # The file's token and certificates belong to the servers in the same file.
    known = {one.rstrip("/").lower() for one in (config.get("server") or DEFAULT_SERVER).split()}
    beside = config if known.issuperset(one.lower() for one in servers) else {}
    return Connection(
        server=servers[0],
        others=servers[1:],
        token=_token(servers, token_file, beside, env, local=local),
        ca_file=ca_file or env.get("LEASEHOLD_CA_FILE") or _path(beside.get("ca_file"), env),
        origin=origin,
    )


def config_path(env: Mapping[str, str]) -> Path:
    """Return the path of ``client.toml``."""
    if env.get("LEASEHOLD_CLIENT_CONFIG"):
        return Path(env["LEASEHOLD_CLIENT_CONFIG"])
    base = env.get("XDG_CONFIG_HOME") or _path("~/.config", env)
    return Path(base) / "leasehold" / "client.toml"


def state_dir(env: Mapping[str, str]) -> Path:
    """Return the default state folder of a scheduler of this user."""
    if env.get("LEASEHOLD_STATE_DIR"):
        return Path(env["LEASEHOLD_STATE_DIR"])
    base = env.get("XDG_STATE_HOME") or _path("~/.local/state", env)
    return Path(base) / "leasehold"


def _local_server(env: Mapping[str, str]) -> str:
    """Return where a scheduler with the default state folder listens; empty if none runs."""
    try:
        process, address = (state_dir(env) / "leasehold.lock").read_text(encoding="utf-8").split()
        os.kill(int(process), 0)
    except (OSError, ValueError):  # no folder, no process of this user, or no address in the file
        return ""
    return address


def _read_config(env: Mapping[str, str]) -> dict[str, Any]:
    path = config_path(env)
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if env.get("LEASEHOLD_CLIENT_CONFIG"):
            raise SettingsError(
                f"LEASEHOLD_CLIENT_CONFIG names {path}, which is not there"
            ) from None
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: {_why_unreadable(error)}") from None
    for key, value in config.items():
        if key not in _KEYS:
            raise SettingsError(f"{path}: unknown key '{key}'; there are {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise SettingsError(f"{path}: '{key}' is {value!r}; give text")
    return config


def _checked(address: str, origin: str) -> str:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise SettingsError(
            f"the server is '{address}' ({origin}), which is no address: {error}"
        ) from None
    if port == 0:
        raise SettingsError(f"the server is '{address}' ({origin}); ports are 1 to 65535")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise SettingsError(
            f"the server is '{address}' ({origin}); give http://HOST:PORT or https://HOST:PORT"
        )
    if parts.username or parts.password:
        raise SettingsError(
            f"the server's address ({origin}) holds a password; use a token instead"
        )
    return address.rstrip("/")


def _token(
    servers: Sequence[str],
    token_file: str | None,
    beside: Mapping[str, str],
    env: Mapping[str, str],
    *,
    local: str,
) -> str:
    if token_file:
        return _read_token(Path(token_file), "--token-file")
    if env.get("LEASEHOLD_TOKEN"):
        return _usable(env["LEASEHOLD_TOKEN"], "LEASEHOLD_TOKEN")
    if beside.get("token"):
        return _usable(beside["token"], str(config_path(env)))
    if beside.get("token_file"):
        return _read_token(Path(_path(beside["token_file"], env)), str(config_path(env)))
    first = state_dir(env) / "admin.token"
    here = all(urlsplit(one).hostname in LOOPBACK or one == local for one in servers)
    if here and os.access(first, os.R_OK):
        return _read_token(first, "the local scheduler's state")
    return ""


def _read_token(path: Path, origin: str) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{origin} names {path}, which cannot be read: {_why_unreadable(error)}"
        ) from None
    return _usable(text, str(path))


def _why_unreadable(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def usable_token(text: str, origin: str) -> str:
    """Refuse a token that cannot be in a header, without showing it; an empty text is no token.

    Raises:
        SettingsError: the text cannot be in a header.
    """
    return _usable(text, origin) if text else ""


def _usable(text: str, origin: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(f"{origin} holds no token: one line such as lh_... was expected")
    return token


def _path(text: str | None, env: Mapping[str, str]) -> str:
    """Expand ``~`` by the given environment, not by the process's."""
    if not text or not text.startswith("~/"):
        return text or ""
    return str(Path(env.get("HOME") or Path.home()) / text[2:])
