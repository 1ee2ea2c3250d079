"""Jobs: submission, actions, waiting, time limits and declared throughputs."""
