"""Readers of several topics: one reader for each topic or partition, and a common interface."""
