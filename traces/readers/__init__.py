"""Readers of trace formats: one a file."""
