"""Fixture of the FastStream tests: a FastStream broker of the Pulsar broker."""

import pytest
from fasted import faststream_broker


@pytest.fixture
def service(broker):
    """Return a FastStream broker."""
    return faststream_broker(broker)
