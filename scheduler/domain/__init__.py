"""Frozen values that every other part of the scheduler speaks in."""

from scheduler.moved import find_moved_modules

find_moved_modules()
