"""Output of commands: tables, JSON and text that is safe for a terminal."""
