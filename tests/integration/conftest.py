"""What the tests of chunked messages and of misuse share: a broker, a client and a topic of their own."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def broker(pulsar_broker_factory):
    """A broker where 100 KiB is the largest message."""
    return pulsar_broker_factory("small-chunks")


@pytest.fixture
def client(pulsar_client_factory, broker):
    """A client of that broker."""
    return pulsar_client_factory(broker)


@pytest.fixture
def topic(pulsar_topic_factory, broker):
    """An unused topic."""
    return pulsar_topic_factory(broker=broker)


@pytest.fixture
def admin(client):
    """The client's own admin API."""
    return client._admin_api()


@pytest.fixture(scope="session")
def spark():
    """The run's one Spark session: two cores of this machine, and nothing that is heard from outside."""
    pytest.importorskip("pyspark")
    from pulsar_ext.spark import spark_session  # noqa: PLC0415  # not everybody has Spark

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = spark_session("tests", master="local[2]", config={"spark.log.level": "ERROR"})
    yield session
    session.stop()
