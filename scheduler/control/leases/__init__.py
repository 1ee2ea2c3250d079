"""Leases: commands of the engine applied, launches, progress, idle GPUs, and ends."""
