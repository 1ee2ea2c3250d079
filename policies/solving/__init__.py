"""How programs over classes of jobs are solved: programs, solvers, and their discipline."""
