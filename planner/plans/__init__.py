"""Parallel plans: how a model could run on some workers, at what speed and with what memory."""
