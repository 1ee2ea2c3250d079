"""The functional core: (state, events, now) -> commands."""
