"""Settings of the process: garbage collector, memory, threads, signals."""
