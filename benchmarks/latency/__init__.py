"""Latency of messages from send to receive: `python -m benchmarks.latency`."""
