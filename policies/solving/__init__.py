"""Solve programs over classes of jobs: the programs, the solvers, and checks of their answers."""
