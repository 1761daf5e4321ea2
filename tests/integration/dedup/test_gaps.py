"""A name opened again on a topic that lacks messages below the broker's number: what is sent again is stored once."""

from __future__ import annotations

import pytest
from chunked import eventually
from reach import official_client
from stored import entries, read

from pulsar_ext.dedup.stored import PREVIOUS_ID
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
def broker(pulsar_broker_factory):
    """A broker that deduplicates every topic."""
    return pulsar_broker_factory("dedup")


@pytest.fixture
def store(broker, admin, topic):
    """Stores numbers of a name as the official client does, each argument in a ledger of its own, and has them kept."""

    def store(*ledgers, name="p", unload=True, properties=None, **options):
        for numbers in ledgers:
            client = official_client(broker)
            client.subscribe(topic, "keeps")  # without one, a snapshot of sequence ids has the broker delete ledgers
            producer = client.create_producer(topic, producer_name=name, **options)
            for number in numbers:
                producer.send_async(b"%d" % number, None, properties, sequence_id=number)
            producer.flush()
            client.close()
            if unload:
                admin.unload(topic)

    return store


def opened(client, topic, **settings):
    """The effectively-once producer of the name."""
    return client.create_producer(topic, producer_name="p", deduplication=True, **settings)


def send(producer, numbers):
    """Send numbers; what each is told."""
    told = {}
    for number in numbers:
        producer.send_async(
            b"%d" % number,
            lambda result, _, number=number: told.update({number: str(result.name)}),
            sequence_id=number,
        )
    producer.flush()
    return told


def stored(client, admin, topic):
    """The numbers that a topic holds, in rising order."""
    count = sum(entry.message_count for entry in entries(admin, topic))
    return sorted(int(message.data()) for message in read(client, topic, count))


@pytest.mark.core
@KINDS
def test_what_is_missing_below_the_brokers_number_is_stored(store, client, admin, topic, settings):
    """4 to 8 were refused, 9 and 10 are there: the name goes on behind 3, and each number is on the topic once."""
    store(range(4), [9, 10])
    producer = opened(client, topic, **settings)
    assert producer.last_sequence_id_published() == 3
    told = send(producer, range(4, 14))
    assert told == {number: "DuplicateMessage" if number in (9, 10) else "Ok" for number in range(4, 14)}
    assert producer.last_sequence_id_published() == 13
    assert stored(client, admin, topic) == list(range(14))


@KINDS
def test_what_the_opening_found_missing_outlasts_what_it_read(store, client, admin, topic, settings):
    """All before 9 and 10 is deleted between the opening and what is sent then: 4 to 8 are stored all the same."""
    store(range(4), [9, 10])
    producer = opened(client, topic, **settings)
    admin.truncate(topic)
    assert eventually(lambda: not entries(admin, topic))
    told = send(producer, range(4, 14))
    assert told == {number: "DuplicateMessage" if number in (9, 10) else "Ok" for number in range(4, 14)}
    assert stored(client, admin, topic) == [*range(4, 9), *range(11, 14)]


@pytest.mark.parametrize("error", [AdminUnavailable, AdminNotFound])
def test_a_walk_that_is_disturbed_goes_on(store, client, admin, topic, monkeypatch, error):
    """A broker that restarts refuses requests, and one that loads the topic does not find entries: neither ends it."""
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
def test_a_process_that_died_while_it_sent_them_again(store, client, admin, topic, settings):
    """4 and 5 are there under the other name: they are duplicates, and only 6 to 8 are sent."""
    store(range(4), [9])
    store([4, 5], name="p+1")
    producer = opened(client, topic, **settings)
    assert producer.last_sequence_id_published() == 3
    told = send(producer, range(4, 12))
    assert [number for number, result in told.items() if result != "Ok"] == [4, 5, 9]
    assert stored(client, admin, topic) == list(range(12))


def test_a_gap_that_is_filled_is_none(store, client, topic):
    """Once all of 4 to 8 are there under another name, the name goes on behind the broker's number."""
    store(range(4), [9])
    store(range(4, 9), name="p+1")
    assert opened(client, topic).last_sequence_id_published() == 9


def test_what_stands_between_two_ledgers_under_other_names_leaves_no_gap(store, client, topic):
    """9 is followed by what was sent again, and 10 by 11 in chunks under a name of its own: the name goes on at 12."""
    store(range(4))
    store([9], unload=False)
    store(range(4, 9), name="p+1")
    store([10], unload=False)
    store([11], name="p~1")
    store([12])
    assert opened(client, topic).last_sequence_id_published() == 12


def test_the_oldest_gap_counts(store, client, admin, topic):
    """Of two gaps the name goes on at the lower one, and both are filled."""
    store(range(3), [5, 6], [9])
    producer = opened(client, topic)
    assert producer.last_sequence_id_published() == 2
    send(producer, range(3, 10))
    assert stored(client, admin, topic) == list(range(10))


@KINDS
def test_ids_with_gaps_of_their_own_stay_exact(store, client, admin, topic, settings):
    """Where ids go by tens, what is sent again from the number on is told as a duplicate, and nothing stands twice."""
    store([10, 20, 30], [40, 50])
    producer = opened(client, topic, **settings)
    assert producer.last_sequence_id_published() == 30
    assert send(producer, [40, 50, 60]) == {40: "DuplicateMessage", 50: "DuplicateMessage", 60: "Ok"}
    assert producer.last_sequence_id_published() == 60
    assert stored(client, admin, topic) == [10, 20, 30, 40, 50, 60]


def test_batches_with_ids_that_leave_some_out_have_no_gap(client, admin, topic, monkeypatch):
    """Each batch says which id was pushed before it: the name goes on at its end, and little is read for that."""
    for first in (10, 40, 70):
        producer = opened(client, topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
        send(producer, range(first, first + 30, 10))
        producer.close()
        admin.unload(topic)
    entry, asked = admin.entry, []
    monkeypatch.setattr(admin, "entry", lambda *place, **options: (asked.append(place), entry(*place, **options))[1])
    assert opened(client, topic).last_sequence_id_published() == 90
    assert len(asked) <= 8
    assert [message.properties() for message in read(client, topic, 9)] == [{}] * 9


def test_what_was_pushed_before_a_batch_and_is_not_there_is_a_gap(store, client, topic):
    """9 and 20 say that 6 had been pushed, and 9: 4 to 6 were refused, 7 and 8 never used, and 10 to 19 neither."""
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


def test_batches_of_the_official_client_are_read(store, client, admin, topic):
    """What stands behind the gap in one batch is known message by message."""
    store(range(4), range(7, 10), batching_enabled=True, batching_max_publish_delay_ms=1_000)
    producer = opened(client, topic)
    assert producer.last_sequence_id_published() == 3
    told = send(producer, range(4, 12))
    assert [number for number, result in told.items() if result != "Ok"] == [7, 8, 9]
    assert stored(client, admin, topic) == list(range(12))


def test_ids_that_go_by_themselves_go_on_behind_all(store, client, admin, topic):
    """Without ids of the application's the missing ones are not taken again: their messages would be others."""
    store(range(4), [9])
    producer = opened(client, topic)
    assert producer.last_sequence_id_published() == 3
    producer.send(b"10")
    assert stored(client, admin, topic) == [0, 1, 2, 3, 9, 10]


def test_no_more_is_looked_at_than_a_process_may_leave_behind(store, client, topic):
    """Behind a gap are more messages than four processes may have had on their way: it is one of the ids' own."""
    store(range(4), range(9, 50))
    producer = opened(client, topic, max_pending_messages=10)
    assert producer.last_sequence_id_published() == 49
    producer.close()
    assert opened(client, topic, max_pending_messages=11).last_sequence_id_published() == 3
