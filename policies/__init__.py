"""Policies: one file each, an objective over configurations."""

from scheduler.moved import find_moved_modules

find_moved_modules()
