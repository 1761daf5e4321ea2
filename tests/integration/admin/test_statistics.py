"""Statistics, entries and positions are read through the admin API."""

import os
import time

import pulsar
import pytest
from stored import send_entries

from pulsar_ext.errors import (
    AdminNotFound,
)
from pulsar_ext.ids.position import Position, PositionRange

BOTH_CLIENTS = True


@pytest.mark.core(slow="a broker of another profile starts")
def test_stats_show_ledgers_and_cursors(admin, client, topic):
    """Three ledgers of 10, 10 and 5 entries, and holes in a cursor, are read correctly."""
    positions = send_entries(client, topic)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    messages = [consumer.receive(5000) for _ in positions]
    for number in (0, 2, 3, 7):
        consumer.acknowledge(messages[number])
    stats = admin.stats(topic)
    assert stats.messages_in == 25
    assert len(stats.subscriptions["s"].consumers) == 1
    consumer.close()
    internal = admin.internal_stats(topic)
    assert [ledger.entries for ledger in internal.ledgers] == [10, 10, 0]
    assert internal.current_ledger_entries == 5
    assert internal.number_of_entries == 25
    assert internal.last_confirmed_entry == positions[-1]
    cursor = internal.cursors["s"]
    assert cursor.mark_delete_position == positions[0]
    assert tuple(cursor.individually_deleted) == (
        PositionRange(positions[1], positions[3]),
        PositionRange(positions[6], positions[7]),
    )
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 21
    analysis = admin.analyze_backlog(topic, "s")
    assert (analysis.entries, analysis.messages, analysis.first) == (21, 21, positions[1])


@pytest.mark.core
@pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")  # all keys are equal
def test_entry_headers_of_batches_chunks_and_plain_messages(admin, client, topic):
    """Headers contain the size of a batch, each chunk's index, keys, properties, null values and the message index."""
    batched = client.create_producer(
        topic, "batched", batching_enabled=True, batching_max_publish_delay_ms=5000, batching_max_messages=100
    )
    for number in range(5):
        batched.send_async(b"x%d" % number, lambda *_: None, partition_key="kéy", properties={"n": str(number)})
    batched.flush()
    batched.close()
    chunked = client.create_producer(topic, "chunked", batching_enabled=False, chunking_enabled=True)
    chunked.send(
        os.urandom(250_000), partition_key="k", ordering_key="o", properties={"ü": "1"}, event_timestamp=123456
    )
    chunked.send(None)
    chunked.close()
    ledger = admin.internal_stats(topic).ledgers[0].ledger_id

    batch = admin.entry(topic, ledger, 0)
    assert (batch.position, batch.message_count, batch.is_chunk) == (Position(ledger, 0), 5, False)
    assert (batch.producer_name, batch.sequence_id, batch.partition_key, batch.index) == ("batched", 0, "kéy", 4)
    assert batch.batch_size > 0
    assert abs(batch.publish_time / 1000 - time.time()) < 60
    assert abs(batch.broker_timestamp - batch.publish_time) < 60_000

    chunks = [admin.entry(topic, ledger, entry) for entry in (1, 2, 3)]
    assert [chunk.chunk_id for chunk in chunks] == [0, 1, 2]
    assert {(chunk.num_chunks, chunk.total_chunk_size, chunk.uuid) for chunk in chunks} == {
        (3, 250_000, chunks[0].uuid)
    }
    assert all(chunk.is_chunk and chunk.message_count == 1 and chunk.payload is None for chunk in chunks)
    assert (chunks[0].ordering_key, chunks[0].properties, chunks[0].event_time) == (b"o", {"ü": "1"}, 123456)
    whole = [admin.entry(topic, ledger, entry, payload=True) for entry in (1, 2, 3)]
    assert sum(len(chunk.payload) for chunk in whole) == 250_000

    assert admin.entry(topic, ledger, 4).null_value
    assert admin.peek(topic, "s") == batch
    assert admin.peek(topic, "s", 3).chunk_id == 1
    assert admin.examine(topic).null_value
    assert admin.examine(topic, 2, initial_position="earliest").chunk_id == 0


@pytest.mark.core
def test_entries_that_do_not_exist_are_not_found(admin, client, topic):
    """The broker's 404 and its various 500s become AdminNotFound with the broker's reason."""
    positions = send_entries(client, topic)
    first, last = positions[0].ledger_id, positions[-1].ledger_id
    for ledger, entry in ((first, 10), (first, 999), (last, 5), (last + 1000, 0)):
        with pytest.raises(AdminNotFound) as caught:
            admin.entry(topic, ledger, entry)
        assert caught.value.reason
        assert "Stacktrace" not in str(caught.value)
    with pytest.raises(AdminNotFound):
        admin.peek(topic, "s", 26)
    with pytest.raises(AdminNotFound):
        admin.examine(topic, 26)


@pytest.mark.core
def test_positions_by_index_and_time(admin, client, topic):
    """An index yields its entry across ledgers, a time the first entry at or after it; an index past the end raises."""
    assert admin.message_id_by_time(topic, 1).entry_id == 0
    positions = send_entries(client, topic)
    assert [admin.message_id_by_index(topic, index) for index in (0, 9, 10, 24)] == [
        positions[index] for index in (0, 9, 10, 24)
    ]
    with pytest.raises(AdminNotFound):
        admin.message_id_by_index(topic, 25)
    published = admin.entry(topic, positions[12].ledger_id, positions[12].entry_id).publish_time
    assert positions[0] < admin.message_id_by_time(topic, published) <= positions[12]
    end = admin.message_id_by_time(topic, int(time.time() * 1000) + 3_600_000)
    assert end == Position(positions[-1].ledger_id, positions[-1].entry_id + 1)
    assert admin.message_id_by_time(topic, 0) == Position(-1, -1)
