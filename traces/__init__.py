"""Workload formats in, jobs out; throughput tables; generators."""

from traces.extend import extend_scale_factors
from traces.native import write_trace
from traces.read import FORMATS, read_trace
from traces.throughputs import read_throughputs, write_throughputs
from traces.trace import Trace

__all__ = [
    "FORMATS",
    "Trace",
    "extend_scale_factors",
    "read_throughputs",
    "read_trace",
    "write_throughputs",
    "write_trace",
]
