"""Jobs: submitted, changed, kept waiting, limited in time, and what they declare."""
