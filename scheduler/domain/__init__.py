"""Frozen values that every other part of the scheduler speaks in."""
