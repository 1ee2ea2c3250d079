"""The use of GPUs is kept beside the time for which they were held."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns; earlier leases count from now on."""
    for table in ("attempts", "usage"):
        for name in ("gpu_used_us", "gpu_measured_us"):
            op.add_column(table, sa.Column(name, NUMBER, nullable=False, server_default="0"))
    op.add_column("attempts", sa.Column("gpu_told_s", sa.Double(), nullable=True))
    marks = sa.Column("gpu_marks", TEXT, nullable=False, server_default="[]")
    op.add_column("attempts", marks)
