"""Logs: the output of jobs, kept by the scheduler and followed by readers."""
