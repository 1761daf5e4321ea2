"""`pulsar-ext ids --topic` shows what the broker has at an id."""

from __future__ import annotations

import json

import pytest

from pulsar_ext.cli.ids import app

pytestmark = pytest.mark.standalone_only("runs a command, which takes URLs", ways=("mtls", "cluster"))


def shown(broker, capsys, topic, *form):
    """What the command prints, as JSON."""
    urls = ("--url", broker.service_url, "--admin-url", broker.admin_url)
    app([*form, "--topic", topic, *urls, "--json"], result_action="return_value")
    return json.loads(capsys.readouterr().out)


@pytest.mark.core
def test_bare_numbers_of_a_chunk_show_the_whole_message(broker, client, topic, capsys):
    """The numbers of the last chunk: which message it is of, and which chunk of how many."""
    message_id = client.create_producer(topic, chunking_enabled=True).send(b"x" * 250_000, partition_key="k")
    facts = shown(broker, capsys, topic, str(message_id.ledger_id()), str(message_id.entry_id()))
    assert facts["message"] == message_id.to_text()
    assert (facts["chunk_id"], facts["num_chunks"], facts["partition_key"]) == (2, 3, "k")
    assert shown(broker, capsys, topic, message_id.serialize().hex())["message"] == message_id.to_text()


@pytest.mark.core
def test_a_batch_shows_how_many_it_holds(broker, client, topic, capsys):
    """The entry of a batch: its number of messages, and no chunks."""
    producer = client.create_producer(topic, batching_enabled=True)
    sent = producer.send_many([b"1", b"2", b"3"])
    facts = shown(broker, capsys, topic, sent.last_message_id.to_text())
    assert facts["num_messages_in_batch"] == 3
    assert "chunk_id" not in facts
