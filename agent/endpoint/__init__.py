"""The endpoint for jobs: progress, preemption notices, and limits on connections."""
