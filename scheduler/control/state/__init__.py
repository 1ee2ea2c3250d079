"""The state of control: books of jobs, leases and nodes, the draft of a decision, the view."""
