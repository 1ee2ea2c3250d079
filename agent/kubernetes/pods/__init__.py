"""Pods of leases: made, watched, read and ended."""
