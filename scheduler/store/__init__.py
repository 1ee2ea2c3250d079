"""Persistence: one ``Store`` protocol, in memory and in SQLite or PostgreSQL."""
