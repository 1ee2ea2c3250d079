"""Throughput tables: reading, writing, scaling, and the reference worker type."""
