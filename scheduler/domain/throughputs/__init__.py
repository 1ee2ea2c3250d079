"""Throughputs: tables, scaling, profiling, and the ports that know them."""
