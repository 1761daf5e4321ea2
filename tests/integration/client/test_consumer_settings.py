"""Settings of consumers that the official client ignores or lacks are in effect."""

from __future__ import annotations

import re
import threading

import pytest
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar
from pulsar_ext.testing import FaultProxy

BOTH_CLIENTS = True

EARLIEST = pulsar.InitialPosition.Earliest
SHARED, FAILOVER = pulsar.ConsumerType.Shared, pulsar.ConsumerType.Failover


class RecordedEvents:
    """Records the events of consumers by name."""

    def __init__(self):
        self.events = []
        self.raises = False

    def of(self, name):
        recorded = self

        class Listener:
            def became_active(self, consumer, partition):
                assert consumer.topic()
                recorded.events.append((name, partition, True))
                if recorded.raises:
                    raise RuntimeError("a mistake in the program's listener")

            def became_inactive(self, consumer, partition):
                recorded.events.append((name, partition, False))

        return Listener()

    def active(self, partition=-1):
        """Return the names of the consumers that are active according to the events."""
        last = {name: active for name, of, active in self.events if of == partition}
        return [name for name, active in last.items() if active]


@pytest.fixture
def recorded():
    """Return recorded events of consumers."""
    return RecordedEvents()


@pytest.mark.core
def test_pattern_discovers_topics_in_its_period(client, topic):
    """A new topic's message is received well within the official discovery period of a minute."""
    consumer = client.subscribe(
        re.compile(f"{topic}-.*"), "s", initial_position=EARLIEST, pattern_auto_discovery_period=1
    )
    for name in ("a", "b"):
        client.create_producer(f"{topic}-{name}").send(payload(1, 20))
        assert index_of(consumer.receive(20_000)) == 1


@pytest.mark.core
@pytest.mark.parametrize(
    "options",
    [
        {"pattern_auto_discovery_period": 0},
        {"priority_level": -1},
        {"priority_level": True},
        {"priority_level": 2**31},
        {"subscription_properties": {"a": 1}},
        {"subscription_properties": {1: "a"}},
    ],
)
def test_invalid_setting_raises(client, admin, topic, options):
    """An invalid setting raises, and neither topic nor subscription is created."""
    with pytest.raises(pulsar.InvalidUse):
        client.subscribe(topic, "s", **options)
    client.create_producer(topic)
    assert not admin.subscriptions(topic)


@pytest.mark.core
def test_lowest_priority_level_gets_messages_first(client, topic):
    """The consumer of level 0 gets all messages while it has permits; after its close the one of level 1 does."""
    consumers = [client.subscribe(topic, "s", SHARED, priority_level=level, receiver_queue_size=10) for level in (1, 0)]
    producer = client.create_producer(topic)
    for index in range(8):
        producer.send(payload(index, 20))
    assert [index_of(message) for message in drain(consumers[1].receive, 8)] == list(range(8))
    consumers[1].close()
    assert {index_of(message) for message in drain(consumers[0].receive, 8)} == set(range(8))


@pytest.mark.core
def test_subscription_properties_are_set(client, admin, topic):
    """The broker shows the first consumer's properties, also after a seek and another consumer."""
    properties = {"team": "billing", "empty": "", "中文": "é 😀"}
    consumer = client.subscribe(topic, "s", SHARED, subscription_properties=properties)
    assert admin.stats(topic).subscriptions["s"].properties == properties
    consumer.seek(pulsar.MessageId.earliest)
    client.subscribe(topic, "s", SHARED, subscription_properties={"team": "other"})
    assert admin.stats(topic).subscriptions["s"].properties == properties


@pytest.mark.core
@pytest.mark.parametrize("partitions", [0, 2])
def test_active_consumer_is_reported(client, recorded, pulsar_topic_factory, broker, partitions):
    """The first consumer becomes active, the second does not until the first one closes."""
    topic = pulsar_topic_factory(broker=broker, partitions=partitions)
    indexes = range(partitions) or [-1]
    first = client.subscribe(topic, "s", FAILOVER, consumer_name="a", consumer_event_listener=recorded.of("first"))
    assert eventually(lambda: all(recorded.active(one) == ["first"] for one in indexes))
    client.subscribe(
        topic, "s", FAILOVER, consumer_name="b", priority_level=1, consumer_event_listener=recorded.of("second")
    )
    assert eventually(lambda: len(recorded.events) == 2 * len(indexes))
    assert {event for event in recorded.events if event[0] == "second"} == {("second", one, False) for one in indexes}
    first.close()
    assert eventually(lambda: all(("second", one, True) in recorded.events for one in indexes))


def test_seek_and_cut_report_no_change(client_factory, broker, recorded, topic):
    """A consumer is notified once that it is active, although seeks and cuts reopen it."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        client = client_factory(broker, service_url=proxy.service_url)
        consumer = client.subscribe(topic, "s", FAILOVER, consumer_event_listener=recorded.of("only"))
        producer = client.create_producer(topic)
        producer.send(payload(0, 20))
        for _ in range(3):
            consumer.seek(pulsar.MessageId.earliest)
            proxy.cut()
            assert index_of(consumer.receive(20_000)) == 0
        assert recorded.events == [("only", -1, True)]


def test_event_listener_may_raise(client, recorded, topic, caplog):
    """An event listener that raises is logged, and the consumer still receives."""
    recorded.raises = True
    consumer = client.subscribe(topic, "s", FAILOVER, consumer_event_listener=recorded.of("only"))
    client.create_producer(topic).send(payload(0, 20))
    assert index_of(consumer.receive(20_000)) == 0
    assert eventually(lambda: "A listener raised" in caplog.text)


def test_program_with_event_listeners_exits(program):
    """A program with many consumers that become active as it ends does not crash."""
    done = program(
        """
        class Listener:
            def became_active(self, consumer, partition): time.sleep(0.001)
            def became_inactive(self, consumer, partition): time.sleep(0.001)
        client, listener = connect(), Listener()
        consumers = [
            client.subscribe(topic, "s", pulsar.ConsumerType.Failover, consumer_event_listener=listener)
            for _ in range(20)
        ]
        for consumer in consumers[:10]:
            consumer.close()
        print("ended")
        """
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ended"), done.stderr[-2000:]


def test_many_consumers_with_event_listeners(client, recorded, topic):
    """After two hundred consumers on two threads, each with a listener, only the last one is active."""

    def open_and_close(name):
        for number in range(100):
            listener = recorded.of(f"{name}{number}")
            client.subscribe(topic, "s", FAILOVER, consumer_event_listener=listener).close()

    threads = [threading.Thread(target=open_and_close, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = client.subscribe(topic, "s", FAILOVER, consumer_event_listener=recorded.of("last"))
    assert eventually(lambda: recorded.active()[-1:] == ["last"])
    kept.close()
