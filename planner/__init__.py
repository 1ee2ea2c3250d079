"""Sources of configurations: what ways there are to run a job."""

from scheduler.moved import find_moved_modules

find_moved_modules()
