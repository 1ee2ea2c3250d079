"""Many runs: sweeps, several processes, and searches over clusters and policies."""
