"""The decider: jobs, quotas, leases and nodes around the engine; pure."""
