"""Cells: the namespaces and limits in which processes of jobs run."""
