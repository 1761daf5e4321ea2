"""Redelivery of whole messages, and dead letters."""
