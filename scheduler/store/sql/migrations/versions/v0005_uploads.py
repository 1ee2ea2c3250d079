"""Trees of code that people upload."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add their table."""
    op.create_table(
        "uploads",
        sa.Column("project", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("size", NUMBER, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("made_s", sa.Double(), nullable=False),
        sa.Column("used_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project", "digest", name="pk_uploads"),
    )
    op.create_index("ix_uploads_used_s", "uploads", ["used_s"])
