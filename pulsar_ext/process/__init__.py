"""Handlers: one run for each message, so many at once, and what becomes of a message whose handler raised."""
