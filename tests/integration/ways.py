"""Marks of tests that do not support all values of `--pulsar-through`."""

from __future__ import annotations

import pytest

OWN_PROXY = pytest.mark.standalone_only(
    "puts a proxy before one broker, past which a cluster's look-ups lead", ways=("cluster",)
)
"""For tests that start their own proxy with only a broker's URL."""
