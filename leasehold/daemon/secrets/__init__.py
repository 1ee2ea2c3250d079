"""Keys and tokens that the daemon and the agent read and renew."""
