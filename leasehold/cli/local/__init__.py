"""Commands that need no scheduler, one per file."""
