"""The tables. Times are seconds since the Unix epoch (UTC) as doubles, which come back exactly."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Sorted by code point everywhere: PostgreSQL would otherwise sort by the database's language.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite's rowid is an "integer", and only a primary key of that very type is one.
NUMBER = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str) -> Column[str]:
    return Column(name, TEXT, nullable=False)


def _number(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, NUMBER, nullable=nullable)


def _key(name: str) -> Column[int]:
    return Column(name, NUMBER, primary_key=True, autoincrement=False)


def _double(name: str, *, nullable: bool = False) -> Column[float]:
    return Column(name, Double(), nullable=nullable)


def _job() -> Column[str]:
    return Column("job_id", TEXT, ForeignKey("jobs.job_id", ondelete="CASCADE"), nullable=False)


# One row. Every writer locks it first, so that writers take turns, a stale leader is detected, and
# event ids become visible in their order.
HEAD = Table(
    "head",
    METADATA,
    _key("id"),
    _number("sequence"),
    _number("event_id"),
    _number("leader_token"),
    Column("leader_holder", TEXT),
    Column("leader_address", TEXT),
    _double("leader_expires_s", nullable=True),
)

JOURNAL = Table(
    "journal",
    METADATA,
    _key("sequence"),
    _double("now_s"),
    _text("events"),
    # The default is for a leader of the previous release, which runs while others are upgraded.
    Column("decider", NUMBER, nullable=False, server_default="0"),
)

SNAPSHOT = Table(
    "snapshot",
    METADATA,
    _key("id"),
    _number("sequence"),
    Column("state", LargeBinary(), nullable=False),
)

JOBS = Table(
    "jobs",
    METADATA,
    Column("job_id", TEXT, primary_key=True),
    _number("number"),
    *(_text(name) for name in ("name", "project", "owner", "job_type")),
    *(_text(name) for name in ("status", "reason", "entity")),
    _number("scale_factor"),
    *(_double(name) for name in ("weight", "total_steps", "steps_done")),
    _number("attempts"),
    _number("failures"),
    _double("submitted_s"),
    *(_double(name, nullable=True) for name in ("started_s", "finished_s", "deadline_s")),
    _double("updated_s"),
    _text("labels"),
    _text("spec"),
    UniqueConstraint("number"),
    Index(None, "status", "number"),
    Index(None, "project", "number"),
    Index(None, "job_type", "number"),
    Index(None, "owner", "number"),
    Index(None, "updated_s", "number"),
    Index(None, "name", "number"),
    Index(None, "weight", "number"),
    Index(None, "finished_s", "number"),
    Index(None, "deadline_s", "number"),
)

JOB_LABELS = Table(
    "job_labels",
    METADATA,
    _job(),
    _text("key"),
    _text("value"),
    _number("number"),
    PrimaryKeyConstraint("job_id", "key"),
    Index(None, "key", "value", "number"),
)

IDEMPOTENCY = Table(
    "idempotency",
    METADATA,
    _text("scope"),
    _text("key"),
    _job(),
    _text("digest"),
    _double("created_s"),
    PrimaryKeyConstraint("scope", "key"),
    Index(None, "job_id"),
)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    _key("lease_id"),
    _job(),
    _number("attempt"),
    _number("token"),
    *(_text(name) for name in ("worker_type", "workers", "nodes")),
    _double("start_s"),
    _double("deadline_s"),
    _double("ended_s", nullable=True),
    Column("end_reason", TEXT),
    _double("steps_done"),
    _number("exit_code", nullable=True),
    _text("message"),
    # The defaults are for a leader of the previous release.
    Column("gpu_used_us", NUMBER, nullable=False, server_default="0"),
    Column("gpu_measured_us", NUMBER, nullable=False, server_default="0"),
    _double("gpu_told_s", nullable=True),
    Column("gpu_marks", TEXT, nullable=False, server_default="[]"),
    Index(None, "job_id", "lease_id"),
    Index(None, "ended_s", "lease_id"),
)

# The use of deleted jobs, by day of UTC.
USAGE = Table(
    "usage",
    METADATA,
    _number("day"),
    *(_text(name) for name in ("project", "owner", "job_type", "worker_type")),
    _number("leases"),
    _number("worker_us"),
    Column("gpu_used_us", NUMBER, nullable=False, server_default="0"),
    Column("gpu_measured_us", NUMBER, nullable=False, server_default="0"),
    PrimaryKeyConstraint("day", "project", "owner", "job_type", "worker_type"),
)

HISTORY = Table(
    "history",
    METADATA,
    _key("event_id"),
    _double("at_s"),
    *(_text(name) for name in ("kind", "subject_kind", "subject", "actor", "data")),
    Index(None, "subject_kind", "subject", "event_id"),
    Index(None, "at_s", "event_id"),
)

SETTINGS = Table(
    "settings",
    METADATA,
    Column("key", TEXT, primary_key=True),
    _text("value"),
    _double("updated_s"),
    _text("actor"),
)

TOKENS = Table(
    "tokens",
    METADATA,
    Column("token_id", TEXT, primary_key=True),
    *(_text(name) for name in ("secret_hash", "subject", "role", "projects")),
    _double("created_s"),
    *(_double(name, nullable=True) for name in ("expires_s", "revoked_s", "last_used_s")),
    # The defaults are for processes of the previous release, which run during an upgrade.
    Column("replaces", TEXT, nullable=False, server_default=""),
    _double("replaced_s", nullable=True),
    UniqueConstraint("secret_hash"),
)

# Trees of code that jobs run from: each project has its own, by their hashes.
UPLOADS = Table(
    "uploads",
    METADATA,
    *(_text(name) for name in ("project", "digest")),
    _number("size"),
    Column("content", LargeBinary(), nullable=False),
    _double("made_s"),
    _double("used_s"),
    PrimaryKeyConstraint("project", "digest"),
    Index(None, "used_s"),
)

ENROLMENTS = Table(
    "enrolments",
    METADATA,
    Column("secret_hash", TEXT, primary_key=True),
    _text("node"),
    _double("created_s"),
    _double("expires_s"),
    _double("used_s", nullable=True),
    _text("used_by"),
    Column("workers", TEXT, nullable=False, server_default="null"),
)
