"""The asynchronous shell of the daemon: clock, driver, nodes, solver pool, recovery."""
