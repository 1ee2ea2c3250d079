"""Entries of the journal get the version of the rules that decided on them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the column; 0 stands for all releases before it."""
    decider = sa.Column("decider", NUMBER, nullable=False, server_default="0")
    op.add_column("journal", decider)
