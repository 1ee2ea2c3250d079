"""Jobs, workers, leases and pairs as tables: what the engine knows, without rules."""
