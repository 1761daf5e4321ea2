"""What the tests of chunked messages and of misuse share: a broker, a client and a topic of their own."""

from __future__ import annotations

import os

import pytest
from awaited import AwaitedClient


@pytest.fixture
def broker(pulsar_broker_factory):
    """A broker where 100 KiB is the largest message."""
    return pulsar_broker_factory("small-chunks")


def pytest_configure(config):
    """Make the mark known."""
    config.addinivalue_line("markers", "blocking_only(why): is about what only the blocking client has")


def pytest_generate_tests(metafunc):
    """Run the tests of a module that says `BOTH_CLIENTS = True` with the blocking and with the asyncio client."""
    if "client_factory" in metafunc.fixturenames:
        both = getattr(metafunc.module, "BOTH_CLIENTS", False) and not any(
            mark.name == "blocking_only" for mark in metafunc.definition.iter_markers()
        )
        metafunc.parametrize("client_factory", ["blocking", "awaited"] if both else ["blocking"], indirect=True)


def pytest_collection_modifyitems(config, items):
    """With the asyncio client, run each test with its first parameters only; PULSAR_EXT_AWAITED=all runs all."""
    if os.environ.get("PULSAR_EXT_AWAITED") == "all":
        return
    seen, left_out = set(), []
    for item in items:
        if getattr(item, "callspec", None) and item.callspec.params.get("client_factory") == "awaited":
            function = (item.module.__name__, item.originalname)
            if function in seen:
                left_out.append(item)
            seen.add(function)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture
def client_factory(request, pulsar_client_factory):
    """Makes clients: blocking ones, or asyncio ones in their shape."""
    if request.param == "blocking":
        yield pulsar_client_factory
        return
    made = []

    def make(broker, **options):
        made.append(AwaitedClient(broker.service_url, **{"admin": broker.admin_url, **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def client(client_factory, broker):
    """A client of that broker."""
    return client_factory(broker)


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
