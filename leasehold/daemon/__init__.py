"""The composition roots of the daemon and of the agent."""
