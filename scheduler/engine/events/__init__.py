"""Handle events: each module takes in the events about one noun."""
