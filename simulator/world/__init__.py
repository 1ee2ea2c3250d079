"""The simulated world: nodes, workers, failures, overheads, and orders by time."""
