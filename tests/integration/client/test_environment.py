"""A client whose broker the environment names."""

from __future__ import annotations

import asyncio

import pytest

import pulsar_ext as pulsar
import pulsar_ext.asyncio


@pytest.fixture
def broker(pulsar_broker_factory):
    """A broker that wants a token."""
    return pulsar_broker_factory("auth")


@pytest.fixture
def environment(broker, monkeypatch):
    """What `pulsar-ext broker run` prints for a shell."""
    monkeypatch.setenv("PULSAR_URL", broker.service_url)
    monkeypatch.setenv("PULSAR_ADMIN_URL", broker.admin_url)
    monkeypatch.setenv("PULSAR_TOKEN", broker.token)


@pytest.mark.core
@pytest.mark.standalone_only("is about tokens, in the place of which mtls has certificates", ways=("mtls",))
def test_a_client_without_a_service_url_is_that_of_the_environment(environment, topic):
    """It sends with the environment's token, and asks its admin API."""
    client = pulsar.Client()
    message_id = client.create_producer(topic).send(b"m")
    assert client.resolve_message_id(topic, message_id) == message_id
    client.close()


@pytest.mark.standalone_only("is about tokens, in the place of which mtls has certificates", ways=("mtls",))
def test_so_is_an_awaited_one(environment, topic):
    """The client of asyncio takes the same variables."""

    async def send():
        client = pulsar_ext.asyncio.Client()
        producer = await client.create_producer(topic)
        message_id = await producer.send(b"m")
        await client.close()
        return message_id

    assert asyncio.run(send()).entry_id() == 0


@pytest.mark.standalone_only("is about tokens, in the place of which mtls has certificates", ways=("mtls",))
def test_the_environments_token_does_not_go_to_a_broker_that_the_program_names(environment, broker, topic):
    """A client that was given a URL uses no token of the environment: this broker refuses it."""
    client = pulsar.Client(broker.service_url)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    client.close()


def test_nobody_says_where_the_broker_is(monkeypatch):
    """Without a URL in either place, the error names both."""
    monkeypatch.delenv("PULSAR_URL", raising=False)
    with pytest.raises(pulsar.InvalidUse, match="PULSAR_URL"):
        pulsar.Client()
