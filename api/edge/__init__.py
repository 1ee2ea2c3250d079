"""The edge: layers around the application, forwarding, privacy of connections."""
