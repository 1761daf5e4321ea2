"""A seek or an opening on one thread while another thread closes does not wait for a missing answer."""

from __future__ import annotations

import random
import threading
import time

import pytest
from acked import send_plain

import pulsar_ext as pulsar

_ROUNDS = 8
_WAIT_SECONDS = 20


@pytest.mark.parametrize("kind", ["consumer", "reader"])
@pytest.mark.parametrize("end", ["close", "client.close", "client.closing"])
def test_seek_ends_with_its_consumer_or_client(client_factory, broker, topic, kind, end):
    """Seeks in a loop to ids, times and the beginning, ended at a random moment, raise AlreadyClosed."""
    sender = client_factory(broker)
    send_plain(sender, topic, 5)
    for number in range(_ROUNDS):
        client = client_factory(broker)
        one = _open(client, topic, kind, number)
        middle = one.receive(10_000) if kind == "consumer" else one.read_next(10_000)
        targets = [middle.message_id(), pulsar.MessageId.earliest, 1]
        thread, raised = _in_a_loop(lambda one=one, targets=targets: one.seek(random.choice(targets)))
        time.sleep(random.random() / 10)
        {"close": one.close, "client.close": client.close, "client.closing": client.shutdown}[end]()
        thread.join(_WAIT_SECONDS)
        assert not thread.is_alive()
        assert isinstance(raised[0], pulsar.AlreadyClosed)


@pytest.mark.parametrize("kind", ["consumer", "reader", "view"])
@pytest.mark.parametrize("end", ["close", "shutdown"])
def test_opening_ends_with_its_client(client_factory, broker, topic, kind, end):
    """Openings in a loop while the client ends raise an error, and do not hang."""
    for _ in range(_ROUNDS):
        client = client_factory(broker)
        thread, raised = _in_a_loop(lambda client=client: _open(client, topic, kind, random.random()))
        time.sleep(random.random() / 10)
        getattr(client, end)()
        thread.join(_WAIT_SECONDS)
        assert not thread.is_alive()
        assert isinstance(raised[0], pulsar.PulsarException)


def _open(client, topic, kind, number):
    if kind == "view":
        return client.create_table_view(topic)
    if kind == "reader":
        return client.create_reader(topic, pulsar.MessageId.earliest)
    return client.subscribe(topic, f"s{number}", initial_position=pulsar.InitialPosition.Earliest)


def _in_a_loop(call):
    raised = []

    def run():
        try:
            while True:
                call()
        except pulsar.PulsarException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised
