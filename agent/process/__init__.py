"""Jobs as processes of this machine, each lease under a supervisor of its own."""
