"""A session with a scheduler: connection, client, errors in words, following."""
