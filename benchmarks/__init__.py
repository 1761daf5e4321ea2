"""Rates of `pulsar_ext` beside those of the official client; `python -m benchmarks --help`."""
