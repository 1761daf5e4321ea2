"""What was redelivered too often becomes a whole dead letter."""

from __future__ import annotations

import pytest

BOTH_CLIENTS = True


@pytest.mark.through
def test_a_chunked_message_past_its_redeliveries_is_a_whole_dead_letter(program):
    """The C++ client would die of a chunked dead letter: here it arrives, whole, and the process lives on."""
    done = program(
        """
        client = connect()
        consumer = client.subscribe(
            topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead"),
        )
        dead = client.subscribe(topic + "-dead", "d")
        client.create_producer(topic, chunking_enabled=True).send(b"x" * 250_000)
        consumer.negative_acknowledge(consumer.receive(20_000))
        consumer.negative_acknowledge(consumer.receive(20_000))
        print(len(dead.receive(20_000).data()))
        client.close()
        """
    )
    assert done.returncode == 0, done.stderr
    assert "250000" in done.stdout.split()
