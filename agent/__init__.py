"""The agent: our process on a node. It holds leases and runs the jobs under them."""
