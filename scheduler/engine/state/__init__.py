"""The state of the engine, what triggers its decisions, and which leases are protected."""
