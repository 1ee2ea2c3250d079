"""Webhooks: addresses that receive lines of history, and the delivery to them."""
