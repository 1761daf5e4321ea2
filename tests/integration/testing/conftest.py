"""Fixtures of the container tests: a check that containers can run, and the engine."""

import contextlib
import os

import pytest
from containers import container_problem

from pulsar_ext.testing.image import connect_engine


@pytest.fixture(scope="session")
def containers():
    """Skip, or with `PULSAR_EXT_REQUIRE_CONTAINERS=1` fail, if no container can run."""
    problem = container_problem()
    if problem is not None and os.environ.get("PULSAR_EXT_REQUIRE_CONTAINERS") == "1":
        pytest.fail(f"containers are required here: {problem}")
    if problem is not None:
        pytest.skip(problem)


@pytest.fixture(scope="module")
def engine(containers):
    """Return the Docker engine's client."""
    with contextlib.closing(connect_engine()) as engine:
        yield engine
