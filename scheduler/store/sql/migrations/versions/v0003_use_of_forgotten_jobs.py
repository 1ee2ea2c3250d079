"""The use of deleted jobs is kept by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table; the use of jobs deleted before is not known."""
    texts = ("project", "owner", "job_type", "worker_type")
    op.create_table(
        "usage",
        sa.Column("day", NUMBER, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in texts),
        sa.Column("leases", NUMBER, nullable=False),
        sa.Column("worker_us", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("day", *texts, name="pk_usage"),
    )
