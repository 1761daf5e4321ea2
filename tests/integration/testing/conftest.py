"""What the tests of containers share: whether any can be run here, and the engine."""

import os

import pytest

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing.image import connect_engine, image_problem


@pytest.fixture(scope="session")
def containers():
    """Skip where no container can be run, with the reason; with `PULSAR_EXT_REQUIRE_CONTAINERS=1` fail."""
    try:
        problem = image_problem()
    except BrokerStartError as error:
        problem = error.message
    if problem is not None and os.environ.get("PULSAR_EXT_REQUIRE_CONTAINERS") == "1":
        pytest.fail(f"containers are required here: {problem}")
    if problem is not None:
        pytest.skip(problem)


@pytest.fixture(scope="module")
def engine(containers):
    """Give the Docker engine's client."""
    wrapper = connect_engine()
    yield wrapper.client
    wrapper.client.close()
