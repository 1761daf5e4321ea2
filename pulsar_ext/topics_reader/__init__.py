"""Readers of several topics: a reader for each topic or partition, and one face for all of them."""
