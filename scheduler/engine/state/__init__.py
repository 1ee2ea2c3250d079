"""The state of the engine, the triggers of its decisions, and protected leases."""
