"""``leasehold secrets``: the keys with which the secret variables of jobs are encrypted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.cli import serve_options as given  # noqa: TC001  typer reads the annotations
from leasehold.cli.serve_options import exits_clearly, make_config, print_note
from leasehold.daemon.secrets.agent_token import write_secret
from leasehold.daemon.secrets.secret_keys import secret_box
from leasehold.daemon.serve import open_store
from scheduler.errors import InputError
from scheduler.runtime.resealing import reseal_secrets as reseal_stored
from scheduler.secret_box import key_id, new_key, parse_keys
from scheduler.unreadable import why_unreadable

if TYPE_CHECKING:
    from leasehold.config.settings import ServerConfig

app = typer.Typer(
    help="Make and change the keys with which secret variables of jobs are encrypted.",
    no_args_is_help=True,
)


@app.command("new-key")
def new_key_file(
    file: Annotated[Path, typer.Argument(help="A new file, which only you may read.")],
) -> None:
    """Write a new key to a new file; name it in the setting `secrets.key_file`.

    Keep a copy apart from the backups of the database: without it the secret variables of jobs
    cannot be read, and anyone with both can read them.
    """
    if file.exists():
        raise InputError(f"there is a file {file} already; `leasehold secrets rotate` adds a key")
    if not file.absolute().parent.is_dir():
        raise InputError(f"there is no folder {file.absolute().parent}; make it (mkdir -p)")
    text = new_key()
    write_secret(file, text)
    print_note(f"key {key_id(parse_keys(text, where=str(file))[0])} is new in {file}\n")


@app.command()
def rotate(
    *,
    config: given.ConfigFile = None,
    state_dir: given.StateDirectory = None,
    db: given.Database = None,
    settings: given.Settings = None,
) -> None:
    """Put a new key first in the key file, and encrypt the stored secrets with it.

    The keys before stay in the file, and are read. Remove them when every scheduler has been
    restarted. Schedulers find the new key by themselves.
    """
    chosen = _config(config, state_dir, db, settings)
    if chosen.secrets.key_file is None:
        raise InputError(
            "secrets.key_file is not set; if keys come in LEASEHOLD_SECRETS__KEYS, put a new "
            "one before them, restart the schedulers, and run `leasehold secrets reseal`"
        )
    path = Path(chosen.secrets.key_file).expanduser()
    try:
        before = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise InputError(
            f"the keys in {path} cannot be read: {why_unreadable(error)}; make them with "
            f"`leasehold secrets new-key {path}`"
        ) from error
    parse_keys(before, where=str(path))
    text = new_key()
    write_secret(path, f"{text}\n{before.rstrip()}")
    print_note(
        f"key {key_id(parse_keys(text, where=str(path))[0])} is new in {path}, and used from now\n"
    )
    _reseal(chosen)


@app.command("reseal")
def reseal(
    *,
    config: given.ConfigFile = None,
    state_dir: given.StateDirectory = None,
    db: given.Database = None,
    settings: given.Settings = None,
) -> None:
    """Encrypt the stored secrets with the first key; list lost keys."""
    _reseal(_config(config, state_dir, db, settings))


def _reseal(config: ServerConfig) -> None:
    with exits_clearly():
        store = open_store(config, migrate=False)
        try:
            done = reseal_stored(store, secret_box(config))
        finally:
            store.close()
    print_note(f"{done.changed} of {done.jobs} jobs with secret variables were encrypted again\n")
    if done.webhooks:
        print_note(f"{done.webhooks} webhooks were encrypted again\n")
    if done.lost:
        raise InputError(done.lost)
    if done.changed or done.webhooks:
        print_note("older keys can be removed once every scheduler has been restarted\n")


def _config(
    path: str | None, state_dir: str | None, db: str | None, settings: list[str] | None
) -> ServerConfig:
    return make_config(
        path=path,
        flags={"state_dir": ("--state-dir", state_dir), "store.url": ("--db", db)},
        parameters=(),
        settings=settings or (),
    )
