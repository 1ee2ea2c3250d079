"""The scheduling service: domain values, engine, and the programs that run it."""
