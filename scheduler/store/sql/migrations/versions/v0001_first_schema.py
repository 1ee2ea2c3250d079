"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create every table."""
    _create_enrolments()
    _create_head()
    _create_history()
    _create_jobs()
    _create_journal()
    _create_settings()
    _create_snapshot()
    _create_tokens()
    _create_attempts()
    _create_idempotency()
    _create_job_labels()


def _create_enrolments() -> None:
    op.create_table(
        "enrolments",
        sa.Column("secret_hash", TEXT, nullable=False),
        sa.Column("node", TEXT, nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=False),
        sa.Column("used_s", sa.Double(), nullable=True),
        sa.Column("used_by", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("secret_hash", name=op.f("pk_enrolments")),
    )


def _create_head() -> None:
    op.create_table(
        "head",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("sequence", NUMBER, nullable=False),
        sa.Column("event_id", NUMBER, nullable=False),
        sa.Column("leader_token", NUMBER, nullable=False),
        sa.Column("leader_holder", TEXT, nullable=True),
        sa.Column("leader_address", TEXT, nullable=True),
        sa.Column("leader_expires_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_head")),
    )


def _create_history() -> None:
    op.create_table(
        "history",
        sa.Column("event_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("subject_kind", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("data", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_history")),
    )
    op.create_index(op.f("ix_history_at_s_event_id"), "history", ["at_s", "event_id"], unique=False)
    op.create_index(
        op.f("ix_history_subject_kind_subject_event_id"),
        "history",
        ["subject_kind", "subject", "event_id"],
        unique=False,
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", TEXT, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("job_type", TEXT, nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("entity", TEXT, nullable=False),
        sa.Column("scale_factor", NUMBER, nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("total_steps", sa.Double(), nullable=False),
        sa.Column("steps_done", sa.Double(), nullable=False),
        sa.Column("attempts", NUMBER, nullable=False),
        sa.Column("failures", NUMBER, nullable=False),
        sa.Column("submitted_s", sa.Double(), nullable=False),
        sa.Column("started_s", sa.Double(), nullable=True),
        sa.Column("finished_s", sa.Double(), nullable=True),
        sa.Column("deadline_s", sa.Double(), nullable=True),
        sa.Column("updated_s", sa.Double(), nullable=False),
        sa.Column("labels", TEXT, nullable=False),
        sa.Column("spec", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("number", name=op.f("uq_jobs_number")),
    )
    op.create_index(
        op.f("ix_jobs_deadline_s_number"), "jobs", ["deadline_s", "number"], unique=False
    )
    op.create_index(
        op.f("ix_jobs_finished_s_number"), "jobs", ["finished_s", "number"], unique=False
    )
    op.create_index(op.f("ix_jobs_job_type_number"), "jobs", ["job_type", "number"], unique=False)
    op.create_index(op.f("ix_jobs_name_number"), "jobs", ["name", "number"], unique=False)
    op.create_index(op.f("ix_jobs_owner_number"), "jobs", ["owner", "number"], unique=False)
    op.create_index(op.f("ix_jobs_project_number"), "jobs", ["project", "number"], unique=False)
    op.create_index(op.f("ix_jobs_status_number"), "jobs", ["status", "number"], unique=False)
    op.create_index(op.f("ix_jobs_updated_s_number"), "jobs", ["updated_s", "number"], unique=False)
    op.create_index(op.f("ix_jobs_weight_number"), "jobs", ["weight", "number"], unique=False)


def _create_journal() -> None:
    op.create_table(
        "journal",
        sa.Column("sequence", NUMBER, autoincrement=False, nullable=False),
        sa.Column("now_s", sa.Double(), nullable=False),
        sa.Column("events", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_journal")),
    )


def _create_settings() -> None:
    op.create_table(
        "settings",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.Column("updated_s", sa.Double(), nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_settings")),
    )


def _create_snapshot() -> None:
    op.create_table(
        "snapshot",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("sequence", NUMBER, nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshot")),
    )


def _create_tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("token_id", TEXT, nullable=False),
        sa.Column("secret_hash", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("projects", TEXT, nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=True),
        sa.Column("revoked_s", sa.Double(), nullable=True),
        sa.Column("last_used_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_tokens_secret_hash")),
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("lease_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("job_id", TEXT, nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("token", NUMBER, nullable=False),
        sa.Column("worker_type", TEXT, nullable=False),
        sa.Column("workers", TEXT, nullable=False),
        sa.Column("nodes", TEXT, nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("deadline_s", sa.Double(), nullable=False),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("end_reason", TEXT, nullable=True),
        sa.Column("steps_done", sa.Double(), nullable=False),
        sa.Column("exit_code", NUMBER, nullable=True),
        sa.Column("message", TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_attempts_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_attempts")),
    )
    op.create_index(
        op.f("ix_attempts_ended_s_lease_id"), "attempts", ["ended_s", "lease_id"], unique=False
    )
    op.create_index(
        op.f("ix_attempts_job_id_lease_id"), "attempts", ["job_id", "lease_id"], unique=False
    )


def _create_idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("job_id", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_idempotency_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_job_id"), "idempotency", ["job_id"], unique=False)


def _create_job_labels() -> None:
    op.create_table(
        "job_labels",
        sa.Column("job_id", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_job_labels_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_job_labels")),
    )
    op.create_index(
        op.f("ix_job_labels_key_value_number"),
        "job_labels",
        ["key", "value", "number"],
        unique=False,
    )
