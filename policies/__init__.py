"""Policies: one file each, an objective over configurations."""
