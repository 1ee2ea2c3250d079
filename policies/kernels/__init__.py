"""Compiled kernels of the policies."""
