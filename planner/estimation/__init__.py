"""Estimation: throughputs and launch times that are measured, or inferred from others."""
