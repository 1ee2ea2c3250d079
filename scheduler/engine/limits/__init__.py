"""Limits on jobs: quotas, reservations, nodes that jobs avoid, and usage of entities."""
