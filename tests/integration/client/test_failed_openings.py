"""Errors of failed openings name occupants, unreachable brokers, and the admin API's reason."""

from __future__ import annotations

import pytest

import pulsar_ext as pulsar
from pulsar_ext.testing.ports import free_port

BOTH_CLIENTS = True


@pytest.mark.core
def test_busy_error_names_the_occupant(client, topic):
    """The error of an occupied subscription or producer name has its holder and the holder's address."""
    holder = client.subscribe(topic, "s", consumer_name="holder")
    with pytest.raises(pulsar.ConsumerBusy, match=r"Exclusive subscription 's' has the consumer 'holder' at /.*opened"):
        client.subscribe(topic, "s")
    holder.close()
    client.create_producer(topic, producer_name="taken")
    with pytest.raises(pulsar.ProducerBusy, match=r"occupied by the producer 'taken' at /.*Nothing was opened"):
        client.create_producer(topic, producer_name="taken")


OPENINGS = ["subscribe", "create_producer", "create_reader", "get_topic_partitions"]


@pytest.mark.core
@pytest.mark.parametrize("opening", OPENINGS)
def test_invalid_topic_name_is_named(client, opening):
    """Each opening raises InvalidTopic with the name and the reason, which is also the official error."""
    more = {"subscribe": ("s",), "create_reader": (pulsar.MessageId.earliest,)}.get(opening, ())
    for name in ("persistent://a", "topic://public/default/scalable"):
        with pytest.raises(pulsar.InvalidTopicName, match=f"'{name}'") as caught:
            getattr(client, opening)(name, *more)
        assert type(caught.value) is pulsar.InvalidTopic


@pytest.mark.parametrize("opening", OPENINGS)
def test_timeout_names_the_unreachable_address(client_factory, broker, topic, opening):
    """The error of a timeout without a broker has the address and the reason."""
    port = free_port()
    client = client_factory(broker, service_url=f"pulsar://localhost:{port}", operation_timeout_seconds=1)
    more = {"subscribe": ("s",), "create_reader": (pulsar.MessageId.earliest,)}.get(opening, ())
    with pytest.raises(pulsar.Timeout, match=rf"no broker listens \(localhost:{port}: Connection refused\)"):
        getattr(client, opening)(topic, *more)


def test_details_are_added_once(client_factory, broker, topic):
    """The details are added once, although an opening of a batched producer contains another one."""
    client = client_factory(broker, service_url=f"pulsar://localhost:{free_port()}", operation_timeout_seconds=1)
    with pytest.raises(pulsar.Timeout) as caught:
        client.create_producer(topic, batching_enabled=True)
    assert str(caught.value).count("no broker listens") == 1


@pytest.mark.standalone_only("is about the authentication of a profile")
def test_timeout_reports_an_invalid_token(client_factory, pulsar_broker_factory):
    """The error of a timeout because of an invalid token has the admin API's reason."""
    guarded = pulsar_broker_factory("auth")
    wrong = pulsar.AuthenticationToken("wrong")
    client = client_factory(guarded, authentication=wrong, admin=guarded.admin_url, operation_timeout_seconds=1)
    with pytest.raises(pulsar.Timeout, match=r"listens, and the admin API says HTTP 401: Authentication required"):
        client.subscribe("persistent://public/default/any", "s")
