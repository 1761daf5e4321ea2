"""Marks of tests that do not support all values of `--pulsar-through`."""

from __future__ import annotations

import pytest

OWN_PROXY = pytest.mark.standalone_only(
    "puts a proxy in front of one broker, which a cluster's lookups bypass", ways=("cluster",)
)
"""For tests that start their own proxy with only a broker's URL."""
