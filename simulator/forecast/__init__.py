"""Forecasts: when jobs complete, replayed from the present state, with intervals."""
