"""A client may take its broker from the environment."""

from __future__ import annotations

import asyncio

import pytest

import pulsar_ext as pulsar
import pulsar_ext.asyncio


@pytest.fixture
def broker(pulsar_broker_factory):
    """Return a broker that requires a token."""
    return pulsar_broker_factory("auth")


@pytest.fixture
def environment(broker, monkeypatch):
    """Set the variables that `pulsar-ext broker run` prints."""
    monkeypatch.setenv("PULSAR_URL", broker.service_url)
    monkeypatch.setenv("PULSAR_ADMIN_URL", broker.admin_url)
    monkeypatch.setenv("PULSAR_TOKEN", broker.token)


@pytest.mark.core
@pytest.mark.standalone_only("is about tokens; mtls uses certificates", ways=("mtls",))
def test_client_uses_the_environment(environment, topic):
    """A client without a service URL uses the URL, token and admin API of the environment."""
    client = pulsar.Client()
    message_id = client.create_producer(topic).send(b"m")
    assert client.resolve_message_id(topic, message_id) == message_id
    client.close()


@pytest.mark.standalone_only("is about tokens; mtls uses certificates", ways=("mtls",))
def test_asyncio_client_uses_the_environment(environment, topic):
    """The asyncio client uses the variables of the environment."""

    async def send():
        client = pulsar_ext.asyncio.Client()
        producer = await client.create_producer(topic)
        message_id = await producer.send(b"m")
        await client.close()
        return message_id

    assert asyncio.run(send()).entry_id() == 0


@pytest.mark.standalone_only("is about tokens; mtls uses certificates", ways=("mtls",))
def test_environment_token_is_unused_with_a_url(environment, broker, topic):
    """A client with an explicit URL does not send the environment's token."""
    client = pulsar.Client(broker.service_url)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    client.close()


def test_missing_service_url_raises(monkeypatch):
    """The error names PULSAR_URL if neither the arguments nor the environment have a URL."""
    monkeypatch.delenv("PULSAR_URL", raising=False)
    with pytest.raises(pulsar.InvalidUse, match="PULSAR_URL"):
        pulsar.Client()
