"""Marks of tests that cannot go everywhere where `--pulsar-through` leads."""

from __future__ import annotations

import pytest

BEHIND_A_PROXY = pytest.mark.standalone_only(
    "puts a proxy before one broker, past which a cluster's look-ups lead", ways=("cluster",)
)
"""For what starts a proxy of its own, with nothing but a broker's URL."""
