"""Commands that need no scheduler: one a file."""
