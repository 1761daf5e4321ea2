"""Rates of `pulsar_ext` and of the official client; `python -m benchmarks --help`."""
