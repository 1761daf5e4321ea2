"""Value types: message ids, positions, topic names."""
