"""How cost grows with size: `python -m benchmarks.growth`."""
