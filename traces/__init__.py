"""Workload formats in, jobs out; throughput tables; generators."""
