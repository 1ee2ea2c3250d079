"""Jobs with a variable batch: how fast they learn, and their measurements."""
