"""`pulsar-ext ids --topic` shows the broker's entry at an id."""

from __future__ import annotations

import json

import pytest

from pulsar_ext.cli.ids import app

pytestmark = pytest.mark.standalone_only("runs a command, which takes URLs", ways=("mtls", "cluster"))


def shown(broker, capsys, topic, *form):
    """Return the JSON that the command prints."""
    urls = ("--url", broker.service_url, "--admin-url", broker.admin_url)
    app([*form, "--topic", topic, *urls, "--json"], result_action="return_value")
    return json.loads(capsys.readouterr().out)


@pytest.mark.core
def test_numbers_of_a_chunk_show_the_whole_message(broker, client, topic, capsys):
    """The numbers of a last chunk show the whole message's id and the number of its chunks."""
    message_id = client.create_producer(topic, chunking_enabled=True).send(b"x" * 250_000, partition_key="k")
    facts = shown(broker, capsys, topic, str(message_id.ledger_id()), str(message_id.entry_id()))
    assert facts["message"] == message_id.to_text()
    assert (facts["chunk_id"], facts["num_chunks"], facts["partition_key"]) == (2, 3, "k")
    assert shown(broker, capsys, topic, message_id.serialize().hex())["message"] == message_id.to_text()


@pytest.mark.core
def test_batch_shows_its_number_of_messages(broker, client, topic, capsys):
    """The entry of a batch shows its number of messages, and no chunks."""
    producer = client.create_producer(topic, batching_enabled=True)
    sent = producer.send_many([b"1", b"2", b"3"])
    facts = shown(broker, capsys, topic, sent.last_message_id.to_text())
    assert facts["num_messages_in_batch"] == 3
    assert "chunk_id" not in facts
