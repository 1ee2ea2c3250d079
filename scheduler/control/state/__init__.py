"""The state of control: jobs, leases and nodes, the transaction of a decision, the view."""
