"""Commands that talk to a running scheduler."""
