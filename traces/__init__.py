"""Reads workload formats into jobs; throughput tables; workload generators."""

from traces.bundle import BUNDLED, bundled
from traces.cluster import read_cluster, read_prices
from traces.generators.generate import KINDS, generate
from traces.reader import FORMATS, read_trace
from traces.readers.native import write_trace
from traces.tables.scaling import extend_scale_factors
from traces.tables.throughputs import read_throughputs, write_throughputs
from traces.trace import Trace, TraceJob

__all__ = [
    "BUNDLED",
    "FORMATS",
    "KINDS",
    "Trace",
    "TraceJob",
    "bundled",
    "extend_scale_factors",
    "generate",
    "read_cluster",
    "read_prices",
    "read_throughputs",
    "read_trace",
    "write_throughputs",
    "write_trace",
]
