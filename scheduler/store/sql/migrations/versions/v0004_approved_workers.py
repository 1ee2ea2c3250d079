"""Enrolments get the workers of their node, and tokens the token that they renewed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns; their defaults are for rows of the previous release."""
    workers = sa.Column("workers", TEXT, nullable=False, server_default="null")
    op.add_column("enrolments", workers)
    op.add_column("tokens", sa.Column("replaces", TEXT, nullable=False, server_default=""))
    op.add_column("tokens", sa.Column("replaced_s", sa.Double(), nullable=True))
