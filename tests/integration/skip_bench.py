"""Operations on a broker for the tests of skips, its profiles, and the kinds of messages."""

import itertools
import time

import pulsar
import pytest

from pulsar_ext.ids.position import Position
from pulsar_ext.testing import Profile
from pulsar_ext.testing.profiles import get_profile

SMALL_LEDGERS = {
    "maxMessageSize": "102400",
    "managedLedgerMaxEntriesPerLedger": "7",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
PLAIN = Profile("skip", "small chunks, seven entries a ledger", SMALL_LEDGERS)
BATCH_ACKS = Profile(
    "skip-batch-acks",
    "small chunks, seven entries a ledger, acknowledgements inside batches",
    {**SMALL_LEDGERS, "acknowledgmentAtBatchIndexLevelEnabled": "true"},
)
INDEXED = Profile(
    "skip-indexed",
    "small chunks, seven entries a ledger, a message index",
    {**SMALL_LEDGERS, **get_profile("entry-index").settings},
)
ONE_LEDGER = Profile(
    "skip-one-ledger",
    "small chunks, one ledger, counting 100 entries at a time",
    {"maxMessageSize": "102400", "subscriptionBacklogScanMaxEntries": "100"},
)
KINDS = ("plain", "batched", "key-batched", "chunked", "mixed")
COUNT = 24
BIG = b"." * 220_000
TYPES = (
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.KeyShared,
)


class Bench:
    """Operations of the tests on one broker."""

    def __init__(self, broker, client, admin, namespace):
        self.broker, self.client, self.admin, self.namespace = broker, client, admin, namespace
        self._numbers = itertools.count()

    def topic(self, *subscriptions):
        name = f"persistent://{self.namespace}/skip-{next(self._numbers)}"
        self.admin.create_topic(name)
        for subscription in subscriptions or ("s",):
            self.admin.create_subscription(name, subscription, "earliest")
        return name

    def fill(self, topic, kind, count=COUNT, begin=0, batch=4):
        """Send labelled messages; a mixed topic alternates plain, batched and chunked ones, `batch` of each."""
        kinds = ("plain", "batched", "chunked") if kind == "mixed" else (kind,)
        labels = [f"{number:05}" for number in range(begin, begin + count)]
        for turn, start in enumerate(range(0, count, batch if kind == "mixed" else count)):
            one = kinds[turn % len(kinds)]
            producer = self.client.create_producer(topic, **_options(one, batch))
            for number, label in enumerate(labels[start : start + (batch if kind == "mixed" else count)]):
                key = f"k{number % 3}" if one == "key-batched" else None
                content = label.encode() + (BIG if one == "chunked" and number % 2 == 0 else b"")
                producer.send_async(content, lambda *_: None, partition_key=key)
            producer.flush()
            producer.close()
        return self.stored(topic)

    def stored(self, topic):
        """Return the messages in the order of the topic: `(label, id)`."""
        reader = self.client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            message = reader.read_next(5000)
            found.append((label_of(message), message.message_id()))
        reader.close()
        return found

    def acknowledge(self, topic, labels, subscription="s"):
        """Acknowledge some messages by a temporary consumer."""
        consumer = self.client.subscribe(
            topic, subscription, consumer_type=pulsar.ConsumerType.Shared, max_pending_chunked_message=100
        )
        remaining = set(labels)
        while remaining:
            message = consumer.receive(5000)
            if label_of(message) in remaining:
                remaining.remove(label_of(message))
                consumer.acknowledge(message)
        consumer.close()

    def drain(self, topic, subscription="s", **options):
        """Receive and acknowledge everything; return the labels in order, once the backlog is empty."""
        options.setdefault("consumer_type", pulsar.ConsumerType.Shared)
        consumer = self.client.subscribe(topic, subscription, max_pending_chunked_message=100, **options)
        found = []
        # The loop ends when the broker shows an empty backlog, without fixed waits.
        deadline = time.monotonic() + 30
        while self.backlog(topic, subscription) or not found:
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                if not self.backlog(topic, subscription) or time.monotonic() > deadline:
                    break
                continue
            found.append(label_of(message))
            consumer.acknowledge(message)
        consumer.close()
        return found

    def backlog(self, topic, subscription="s"):
        return self.admin.stats(topic, precise_backlog=True).subscriptions[subscription].backlog_entries

    def mark_delete(self, topic, subscription="s"):
        return self.admin.internal_stats(topic).cursors[subscription].mark_delete_position


def label_of(message):
    return message.data()[:5].decode()


def _options(kind, batch=4):
    if kind == "chunked":
        return {"batching_enabled": False, "chunking_enabled": True}
    if kind == "plain":
        return {"batching_enabled": False}
    based = pulsar.BatchingType.KeyBased if kind == "key-batched" else pulsar.BatchingType.Default
    return {
        "batching_enabled": True,
        "block_if_queue_full": True,
        "batching_type": based,
        "batching_max_messages": batch if kind != "key-batched" else 3 * batch,
        "batching_max_publish_delay_ms": 10_000,
    }


def on(*profiles):
    return pytest.mark.parametrize("bench", profiles, indirect=True, ids=lambda profile: profile.name)


def position_of(message_id):
    return Position(message_id.ledger_id(), message_id.entry_id())


def whole_entries(stored):
    """Return labels of whole entries, which every broker can acknowledge: the first, some in the middle, the last."""
    entries = {}
    for label, at in stored:
        entries.setdefault((at.ledger_id(), at.entry_id()), []).append(label)
    groups = list(entries.values())
    middle = len(groups) // 2
    return {label for number in {0, 2, middle, middle + 1, len(groups) - 1} for label in groups[number % len(groups)]}
