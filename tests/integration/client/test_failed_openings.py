"""What an opening that failed says: who is there, whether a broker listens, and what the admin API says."""

from __future__ import annotations

import pytest

import pulsar_ext as pulsar
from pulsar_ext.testing.ports import free_port

BOTH_CLIENTS = True


@pytest.mark.core
def test_a_busy_opening_says_who_is_there(client, topic):
    """A subscription or a producer name that is taken is named with its holder and the holder's address."""
    held = client.subscribe(topic, "s", consumer_name="holder")
    with pytest.raises(pulsar.ConsumerBusy, match=r"Exclusive subscription 's' has the consumer 'holder' at /.*opened"):
        client.subscribe(topic, "s")
    held.close()
    client.create_producer(topic, producer_name="taken")
    with pytest.raises(pulsar.ProducerBusy, match=r"there is the producer 'taken' at /.*Nothing was opened"):
        client.create_producer(topic, producer_name="taken")


OPENINGS = ["subscribe", "create_producer", "create_reader", "get_topic_partitions"]


@pytest.mark.core
@pytest.mark.parametrize("opening", OPENINGS)
def test_a_name_that_is_not_a_topics_is_named(client, opening):
    """Each opening raises InvalidTopic with the name and the reason, and clauses for the official error catch it."""
    more = {"subscribe": ("s",), "create_reader": (pulsar.MessageId.earliest,)}.get(opening, ())
    for name in ("persistent://a", "topic://public/default/scalable"):
        with pytest.raises(pulsar.InvalidTopicName, match=f"'{name}'") as caught:
            getattr(client, opening)(name, *more)
        assert type(caught.value) is pulsar.InvalidTopic


@pytest.mark.parametrize("opening", OPENINGS)
def test_a_timeout_says_that_nothing_listens(client_factory, broker, topic, opening):
    """An opening that times out because there is no broker says so, with the address and the reason."""
    port = free_port()
    client = client_factory(broker, service_url=f"pulsar://localhost:{port}", operation_timeout_seconds=1)
    more = {"subscribe": ("s",), "create_reader": (pulsar.MessageId.earliest,)}.get(opening, ())
    with pytest.raises(pulsar.Timeout, match=rf"no broker listens \(localhost:{port}: Connection refused\)"):
        getattr(client, opening)(topic, *more)


def test_what_is_known_is_said_once(client_factory, broker, topic):
    """An opening that has another one within it, of a producer with batches of our own, says once what is known."""
    client = client_factory(broker, service_url=f"pulsar://localhost:{free_port()}", operation_timeout_seconds=1)
    with pytest.raises(pulsar.Timeout) as caught:
        client.create_producer(topic, batching_enabled=True)
    assert str(caught.value).count("no broker listens") == 1


@pytest.mark.standalone_only("is about the authentication that a profile has of its own")
def test_a_timeout_says_that_the_token_is_refused(client_factory, pulsar_broker_factory):
    """An opening that times out because of its token says what the admin API says of that."""
    guarded = pulsar_broker_factory("auth")
    wrong = pulsar.AuthenticationToken("wrong")
    client = client_factory(guarded, authentication=wrong, admin=guarded.admin_url, operation_timeout_seconds=1)
    with pytest.raises(pulsar.Timeout, match=r"listens, and the admin API says HTTP 401: Authentication required"):
        client.subscribe("persistent://public/default/any", "s")
