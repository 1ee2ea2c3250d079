"""Jobs, workers, leases and pairs as tables: the data of the engine, without rules."""
