"""How long a message takes from its sending to its receiving: `python -m benchmarks.latency`."""
