"""Views: jobs, nodes, leases and shares as people see them, with reasons."""
