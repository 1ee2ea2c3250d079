"""Limits on jobs: quotas, reservations, nodes that jobs avoid, and the use of entities."""
