"""The client, which opens and closes producers, consumers and readers."""
