"""pytest plugin that uses the brokers of the process that runs all mutants, which starts each broker once."""

from __future__ import annotations

import json
import os

import pytest

from pulsar_ext.testing.plugin import RUN
from pulsar_ext.testing.rpc import PoolClient


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Replace the source of brokers."""
    config.stash[RUN]._source = PoolClient(json.loads(os.environ["MUTANTS_TICKET"]))
