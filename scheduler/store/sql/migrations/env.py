"""The script that alembic runs: it migrates in the caller's connection and transaction."""

from __future__ import annotations

from alembic import context

from scheduler.store.sql.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
)
context.run_migrations()
