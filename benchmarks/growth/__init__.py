"""Growth of cost with size: `python -m benchmarks.growth`."""
