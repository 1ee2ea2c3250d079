"""The protocol between scheduler and agents: messages, bounds, and reading them."""
