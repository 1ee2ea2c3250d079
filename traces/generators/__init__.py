"""Generators of workloads, and the distributions that they draw from."""
