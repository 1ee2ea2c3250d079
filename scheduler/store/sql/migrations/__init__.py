"""Migrations of the schema: expand first, contract a release later."""
