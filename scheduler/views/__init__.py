"""Views: what people are shown of jobs, nodes, leases and shares, and why."""
