"""Handle events: each module handles the events about one noun."""
