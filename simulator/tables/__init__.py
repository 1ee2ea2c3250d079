"""Tables of a run: its ledger, summaries, and columns."""
