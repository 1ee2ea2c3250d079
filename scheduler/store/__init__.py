"""Persistence: one ``Store`` protocol, in SQLite and PostgreSQL."""
