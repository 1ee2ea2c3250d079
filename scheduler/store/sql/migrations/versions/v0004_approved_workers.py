"""Enrolments say what a node may have; tokens say which token they were made for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns; their defaults are what the release before leaves out."""
    workers = sa.Column("workers", TEXT, nullable=False, server_default="null")
    op.add_column("enrolments", workers)
    op.add_column("tokens", sa.Column("replaces", TEXT, nullable=False, server_default=""))
    op.add_column("tokens", sa.Column("replaced_s", sa.Double(), nullable=True))
