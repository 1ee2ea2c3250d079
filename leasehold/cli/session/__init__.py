"""A session with a scheduler: connection, client, error messages, following."""
