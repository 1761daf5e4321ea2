"""Fixture of the tests of skips: a bench on the profile that a test selects."""

import pulsar
import pytest
from skip_bench import PLAIN, Bench

from pulsar_ext.admin import PulsarAdmin


@pytest.fixture
def bench(request, pulsar_broker_factory, client_factory, pulsar_namespace_factory):
    broker = pulsar_broker_factory(getattr(request, "param", PLAIN))
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        client = client_factory(broker, admin=admin, logger=quiet)
        yield Bench(broker, client, admin, pulsar_namespace_factory(broker))
