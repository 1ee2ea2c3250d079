"""The HTTP server: listener, connections, protocol."""
