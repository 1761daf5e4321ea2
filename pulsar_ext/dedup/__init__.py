"""Producers with deduplication (effectively once): sequence ids, and a producer's entries on a topic."""
