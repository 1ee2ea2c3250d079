"""Readers of trace formats, one per file."""
