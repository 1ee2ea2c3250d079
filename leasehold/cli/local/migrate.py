"""``leasehold migrate``: bring the database up to date, apart from a start of the daemon."""

from __future__ import annotations

from leasehold.cli import serve_options as given  # noqa: TC001  typer reads the annotations
from leasehold.cli.serve_options import exits_clearly, make_config, print_note
from leasehold.config.sources import mask_secrets
from leasehold.daemon.serve import migrate as run_migrations


def migrate(
    *,
    config: given.ConfigFile = None,
    state_dir: given.StateDirectory = None,
    db: given.Database = None,
    settings: given.Settings = None,
) -> None:
    """Bring the database's schema up to this release, and end.

    `leasehold serve` does the same at its start unless `store.migrate` is false. Several may do it
    at once: one migrates, and the others wait for it.
    """
    chosen = make_config(
        path=config,
        flags={"state_dir": ("--state-dir", state_dir), "store.url": ("--db", db)},
        parameters=(),
        settings=settings or (),
    )
    with exits_clearly():
        run_migrations(chosen)
    print_note(f"{mask_secrets('store.url', chosen.store.url or '')} is up to date\n")
