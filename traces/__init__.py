"""Workload formats in, jobs out; throughput tables; generators."""

from traces.throughputs import read_throughputs, write_throughputs

__all__ = ["read_throughputs", "write_throughputs"]
