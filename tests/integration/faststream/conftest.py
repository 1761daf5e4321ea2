"""What the tests of FastStream share: a FastStream broker of the Pulsar broker."""

import pytest
from fasted import faststream_broker


@pytest.fixture
def service(broker):
    """A FastStream broker."""
    return faststream_broker(broker)
