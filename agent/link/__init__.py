"""The link to the scheduler: its port, and HTTP behind it."""
