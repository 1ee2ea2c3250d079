"""Sources of configurations: the ways in which jobs can run."""

from scheduler.moved import find_moved_modules

find_moved_modules()
