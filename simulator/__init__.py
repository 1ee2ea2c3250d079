"""The trace-driven simulator: the real engine and policies on a virtual clock."""
