"""Arguments of a wrong type raise before anything is opened."""

from __future__ import annotations

import pulsar
import pytest

from pulsar_ext import Client, ConsumerEventListener, InvalidUse, MultiplierRedeliveryBackoff


class Listener(ConsumerEventListener):
    """A listener class, passed by mistake instead of an object."""


@pytest.fixture
def client():
    """Yield a client that never connects."""
    made = Client("pulsar://127.0.0.1:1", operation_timeout_seconds=1)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer_event_listener", Listener),
        ("consumer_event_listener", 5),
        ("dead_letter_policy", pulsar.ConsumerDeadLetterPolicy),
        ("dead_letter_policy", 5),
        ("message_listener", 5),
        ("negative_ack_redelivery_backoff", MultiplierRedeliveryBackoff),
        ("subscription_properties", 5),
        ("subscription_properties", {"a": 1}),
    ],
)
def test_subscribe_raises_for_wrong_types(client, name, value):
    """A class instead of an object, or a value of a wrong type, raises an error that names the argument."""
    with pytest.raises(InvalidUse, match=name):
        client.subscribe("topic", "subscription", **{name: value})


def test_create_producer_raises_for_an_invalid_router(client):
    """A `message_router` that is not callable raises when the producer is created."""
    with pytest.raises(InvalidUse, match="message_router must be a function, got 5"):
        client.create_producer("topic", message_router=5)


def test_unknown_keyword_raises_type_error(client):
    """A misspelt argument raises Python's own TypeError with the method's name."""
    with pytest.raises(TypeError, match=r"^Client\.subscribe\(\) got an unexpected keyword argument 'nosuch'$"):
        client.subscribe("topic", "subscription", nosuch=5)


@pytest.mark.parametrize("given", ["a URL", None])
def test_closed_client_uses_no_admin_api(given):
    """Each admin call raises `AlreadyClosed` after `close()` and `shutdown()`, and no admin API is derived."""
    for end in (Client.close, Client.shutdown):
        client = Client("pulsar://127.0.0.1:1", admin=given and "http://127.0.0.1:1")
        end(client)
        for name, *arguments in (
            ("skip_messages", "topic", "subscription", 1),
            ("acknowledge", "topic", "subscription", pulsar.MessageId(-1, 5, 7)),
            ("diagnose", "topic"),
            ("look", "topic"),
            ("message_id_after", "topic", pulsar.MessageId.earliest, 1),
            ("message_id_by_index", "topic", 1),
            ("resolve_message_id", "topic", pulsar.MessageId(-1, 5, 7, -1)),
            ("create_reader_group", "topic", pulsar.MessageId.earliest, 2),
            ("stats",),
        ):
            with pytest.raises(pulsar.AlreadyClosed):
                getattr(client, name)(*arguments)
