"""Tables of a run: what it is measured by, summaries, and columns."""
