"""What decides: jobs, quotas, leases and nodes around the engine; pure."""
