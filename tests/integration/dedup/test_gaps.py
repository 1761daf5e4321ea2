"""Reopened producers on topics that lack messages below the broker's last id: each message is stored once."""

from __future__ import annotations

import pytest
from chunked import eventually
from reach import official_client
from stored import entries, read

from pulsar_ext.dedup.opening import PREVIOUS_ID
from pulsar_ext.errors import AdminNotFound, AdminUnavailable

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")
KINDS = pytest.mark.parametrize(
    "settings",
    [
        {"batching_enabled": False},
        {"batching_enabled": True, "batching_max_messages": 3, "batching_max_publish_delay_ms": 60_000},
        {"chunking_enabled": True},
    ],
    ids=["single", "in-threes", "chunking"],
)


@pytest.fixture
def broker(deduplicating):
    """A broker that deduplicates this test's topics."""
    return deduplicating


@pytest.fixture
def store(broker, admin, topic):
    """Return a function that stores integers with the official client, one ledger for each argument."""

    def store(*ledgers, name="p", unload=True, properties=None, **options):
        for numbers in ledgers:
            client = official_client(broker)
            client.subscribe(topic, "keeps")  # otherwise the broker deletes ledgers after a snapshot
            producer = client.create_producer(topic, producer_name=name, **options)
            for number in numbers:
                producer.send_async(b"%d" % number, None, properties, sequence_id=number)
            producer.flush()
            client.close()
            if unload:
                admin.unload(topic)

    return store


def opened(client, topic, **settings):
    """Return the effectively-once producer of the name."""
    return client.create_producer(topic, producer_name="p", deduplication=True, **settings)


def send(producer, numbers):
    """Send integers; return the result of each."""
    reported = {}
    for number in numbers:
        producer.send_async(
            b"%d" % number,
            lambda result, _, number=number: reported.update({number: str(result.name)}),
            sequence_id=number,
        )
    producer.flush()
    return reported


def stored(client, admin, topic):
    """Return the integers on a topic, sorted."""
    count = sum(entry.message_count for entry in entries(admin, topic))
    return sorted(int(message.data()) for message in read(client, topic, count))


@pytest.mark.core
@KINDS
def test_missing_messages_below_brokers_id_are_stored(store, client, admin, topic, settings):
    """4 to 8 were rejected, 9 and 10 stored: the name resumes after 3, and each integer is stored once."""
    store(range(4), [9, 10])
    producer = opened(client, topic, **settings)
    assert producer.last_sequence_id_published() == 3
    reported = send(producer, range(4, 14))
    assert reported == {number: "DuplicateMessage" if number in (9, 10) else "Ok" for number in range(4, 14)}
    assert producer.last_sequence_id_published() == 13
    assert stored(client, admin, topic) == list(range(14))


@KINDS
def test_gap_is_remembered_after_topic_is_truncated(store, client, admin, topic, settings):
    """4 to 8 are stored even if all entries before 9 and 10 are deleted after the opening."""
    store(range(4), [9, 10])
    producer = opened(client, topic, **settings)
    admin.truncate(topic)
    assert eventually(lambda: not entries(admin, topic))
    reported = send(producer, range(4, 14))
    assert reported == {number: "DuplicateMessage" if number in (9, 10) else "Ok" for number in range(4, 14)}
    assert stored(client, admin, topic) == [*range(4, 9), *range(11, 14)]


@pytest.mark.parametrize("error", [AdminUnavailable, AdminNotFound])
def test_entry_search_survives_admin_errors(store, client, admin, topic, monkeypatch, error):
    """Admin requests fail while a broker restarts, and miss entries while it loads a topic; the search continues."""
    store(range(4), [9, 10])
    entry, asked = admin.entry, set()

    def disturbed(topic, ledger_id, entry_id, **options):
        if (ledger_id, entry_id) not in asked:
            asked.add((ledger_id, entry_id))
            raise error("away")
        return entry(topic, ledger_id, entry_id, **options)

    monkeypatch.setattr(admin, "entry", disturbed)
    assert opened(client, topic).last_sequence_id_published() == 3
    assert asked


@KINDS
def test_messages_resent_by_a_killed_process_are_duplicates(store, client, admin, topic, settings):
    """4 and 5 are stored under the derived name: they are duplicates, and only 6 to 8 are sent."""
    store(range(4), [9])
    store([4, 5], name="p+1")
    producer = opened(client, topic, **settings)
    assert producer.last_sequence_id_published() == 3
    reported = send(producer, range(4, 12))
    assert [number for number, result in reported.items() if result != "Ok"] == [4, 5, 9]
    assert stored(client, admin, topic) == list(range(12))


def test_filled_gap_is_ignored(store, client, topic):
    """Once 4 to 8 are stored under a derived name, the name resumes after the broker's id."""
    store(range(4), [9])
    store(range(4, 9), name="p+1")
    assert opened(client, topic).last_sequence_id_published() == 9


def test_entries_of_derived_names_fill_gaps(store, client, topic):
    """Resent messages after 9 and a chunked message 11 of a derived name leave no gap: the name resumes at 12."""
    store(range(4))
    store([9], unload=False)
    store(range(4, 9), name="p+1")
    store([10], unload=False)
    store([11], name="p~1")
    store([12])
    assert opened(client, topic).last_sequence_id_published() == 12


def test_name_resumes_at_the_oldest_gap(store, client, admin, topic):
    """The name resumes at the lower of two gaps, and both are filled."""
    store(range(3), [5, 6], [9])
    producer = opened(client, topic)
    assert producer.last_sequence_id_published() == 2
    send(producer, range(3, 10))
    assert stored(client, admin, topic) == list(range(10))


@KINDS
def test_unused_ids_between_ledgers_cause_no_duplicates(store, client, admin, topic, settings):
    """With ids in steps of ten, resent messages are reported as duplicates, and none is stored twice."""
    store([10, 20, 30], [40, 50])
    producer = opened(client, topic, **settings)
    assert producer.last_sequence_id_published() == 30
    assert send(producer, [40, 50, 60]) == {40: "DuplicateMessage", 50: "DuplicateMessage", 60: "Ok"}
    assert producer.last_sequence_id_published() == 60
    assert stored(client, admin, topic) == [10, 20, 30, 40, 50, 60]


def test_recorded_previous_ids_rule_out_gaps(client, admin, topic, monkeypatch):
    """Each batch records the id pushed before it: the name resumes at its end, and few entries are read."""
    for first in (10, 40, 70):
        producer = opened(client, topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
        send(producer, range(first, first + 30, 10))
        producer.close()
        admin.unload(topic)
    entry, asked = admin.entry, []
    monkeypatch.setattr(
        admin, "entry", lambda *position, **options: (asked.append(position), entry(*position, **options))[1]
    )
    assert opened(client, topic).last_sequence_id_published() == 90
    assert len(asked) <= 8
    assert [message.properties() for message in read(client, topic, 9)] == [{}] * 9


def test_missing_previous_id_is_a_gap(store, client, topic):
    """9 and 20 record the previous ids 6 and 9: 4 to 6 were rejected, 7, 8 and 10 to 19 were never used."""
    store(range(4))
    store([9], properties={PREVIOUS_ID: "6"})
    store([20], properties={PREVIOUS_ID: "9"})
    producer = opened(client, topic)
    assert producer.last_sequence_id_published() == 3
    assert send(producer, [4, 5, 6, 9, 20, 21]) == {
        **dict.fromkeys([4, 5, 6, 21], "Ok"),
        **dict.fromkeys([9, 20], "DuplicateMessage"),
    }
    producer.close()
    assert opened(client, topic).last_sequence_id_published() == 21


def test_official_batches_after_a_gap_are_read(store, client, admin, topic):
    """Messages of an official batch after the gap are known one by one."""
    store(range(4), range(7, 10), batching_enabled=True, batching_max_publish_delay_ms=1_000)
    producer = opened(client, topic)
    assert producer.last_sequence_id_published() == 3
    reported = send(producer, range(4, 12))
    assert [number for number, result in reported.items() if result != "Ok"] == [7, 8, 9]
    assert stored(client, admin, topic) == list(range(12))


def test_automatic_ids_do_not_fill_gaps(store, client, admin, topic):
    """Automatic ids do not reuse missing ids, whose messages were different ones."""
    store(range(4), [9])
    producer = opened(client, topic)
    assert producer.last_sequence_id_published() == 3
    producer.send(b"10")
    assert stored(client, admin, topic) == [0, 1, 2, 3, 9, 10]


def test_gap_search_is_limited_by_max_pending_messages(store, client, topic):
    """A gap before more messages than four processes may have in flight is counted as unused ids."""
    store(range(4), range(9, 50))
    producer = opened(client, topic, max_pending_messages=10)
    assert producer.last_sequence_id_published() == 49
    producer.close()
    assert opened(client, topic, max_pending_messages=11).last_sequence_id_published() == 3
