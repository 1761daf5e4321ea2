"""Fixtures of the admin API's tests: a broker with small ledgers, its API, and topics with a subscription."""

import socket

import pytest
from indexes import INDEXES
from reach import official_client

from pulsar_ext.admin import Retention


@pytest.fixture(scope="module")
def broker(pulsar_broker_factory):
    return pulsar_broker_factory(INDEXES)


@pytest.fixture(scope="module")
def admin(broker, admin_class):
    with admin_class(broker.admin_url, **broker.access.admin_options()) as made:
        yield made


@pytest.fixture(scope="module")
def client(broker):
    made = official_client(broker)
    yield made
    made.close()


@pytest.fixture
def namespace(broker, admin, pulsar_namespace_factory):
    name = pulsar_namespace_factory(broker)
    # Retention keeps acknowledged ledgers for later look-ups.
    admin.set_retention(name, Retention(minutes=60, size_mib=100))
    return name


@pytest.fixture
def topic(namespace, admin):
    name = f"persistent://{namespace}/topic"
    admin.create_topic(name)
    admin.create_subscription(name, "s", "earliest")
    return name


@pytest.fixture
def parent(namespace, admin):
    name = f"persistent://{namespace}/parent"
    admin.create_partitioned_topic(name, 2)
    admin.create_subscription(name, "s", "earliest")
    return name


@pytest.fixture
def silent_port():
    """Yield a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
