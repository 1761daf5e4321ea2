"""Settings of consumers that the official client ignores or does not know, as broker and other consumers see them."""

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


class Heard:
    """Notes what consumers hear of being active, by their names."""

    def __init__(self):
        self.events = []
        self.raises = False

    def of(self, name):
        heard = self

        class Listener:
            def became_active(self, consumer, partition):
                assert consumer.topic()
                heard.events.append((name, partition, True))
                if heard.raises:
                    raise RuntimeError("a mistake in the program's listener")

            def became_inactive(self, consumer, partition):
                heard.events.append((name, partition, False))

        return Listener()

    def active(self, partition=-1):
        """Who is active as far as was heard."""
        last = {name: active for name, where, active in self.events if where == partition}
        return [name for name, active in last.items() if active]


@pytest.fixture
def heard():
    """What consumers heard."""
    return Heard()


@pytest.mark.core
def test_a_pattern_finds_new_topics_within_its_period(client, topic):
    """A topic that is made later is received from, long before the official client's minute is over."""
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
def test_what_cannot_be_is_refused(client, admin, topic, options):
    """Nothing is opened, and no subscription is made."""
    with pytest.raises(pulsar.InvalidUse):
        client.subscribe(topic, "s", **options)
    client.create_producer(topic)
    assert not admin.subscriptions(topic)


@pytest.mark.core
def test_messages_go_to_the_consumer_of_the_lowest_number(client, topic):
    """While the consumer of level 0 has room it gets everything; behind its end the one of level 1 does."""
    consumers = [client.subscribe(topic, "s", SHARED, priority_level=level, receiver_queue_size=10) for level in (1, 0)]
    producer = client.create_producer(topic)
    for index in range(8):
        producer.send(payload(index, 20))
    assert [index_of(message) for message in drain(consumers[1].receive, 8)] == list(range(8))
    consumers[1].close()
    assert {index_of(message) for message in drain(consumers[0].receive, 8)} == set(range(8))


@pytest.mark.core
def test_a_subscription_carries_properties(client, admin, topic):
    """The broker shows those of the consumer that made the subscription, also behind a seek and another consumer."""
    properties = {"team": "billing", "empty": "", "中文": "é 😀"}
    consumer = client.subscribe(topic, "s", SHARED, subscription_properties=properties)
    assert admin.stats(topic).subscriptions["s"].properties == properties
    consumer.seek(pulsar.MessageId.earliest)
    client.subscribe(topic, "s", SHARED, subscription_properties={"team": "other"})
    assert admin.stats(topic).subscriptions["s"].properties == properties


@pytest.mark.core
@pytest.mark.parametrize("partitions", [0, 2])
def test_who_is_active_is_heard(client, heard, pulsar_topic_factory, broker, partitions):
    """The first consumer becomes active, the second does not; when the first closes the second does."""
    topic = pulsar_topic_factory(broker=broker, partitions=partitions)
    where = range(partitions) or [-1]
    first = client.subscribe(topic, "s", FAILOVER, consumer_name="a", consumer_event_listener=heard.of("first"))
    assert eventually(lambda: all(heard.active(one) == ["first"] for one in where))
    client.subscribe(
        topic, "s", FAILOVER, consumer_name="b", priority_level=1, consumer_event_listener=heard.of("second")
    )
    assert eventually(lambda: len(heard.events) == 2 * len(where))
    assert {event for event in heard.events if event[0] == "second"} == {("second", one, False) for one in where}
    first.close()
    assert eventually(lambda: all(("second", one, True) in heard.events for one in where))


def test_a_seek_and_a_cut_are_no_change_by_themselves(client_factory, broker, heard, topic):
    """A consumer that is alone hears once that it is active, whatever opens it anew, and events go on behind that."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        client = client_factory(broker, service_url=proxy.service_url)
        consumer = client.subscribe(topic, "s", FAILOVER, consumer_event_listener=heard.of("only"))
        producer = client.create_producer(topic)
        producer.send(payload(0, 20))
        for _ in range(3):
            consumer.seek(pulsar.MessageId.earliest)
            proxy.cut()
            assert index_of(consumer.receive(20_000)) == 0
        assert heard.events == [("only", -1, True)]


def test_a_listener_of_events_that_raises_harms_nobody(client, heard, topic, caplog):
    """It is logged, and the consumer receives; a consumer that was dropped and closed is told nothing."""
    heard.raises = True
    consumer = client.subscribe(topic, "s", FAILOVER, consumer_event_listener=heard.of("only"))
    client.create_producer(topic).send(payload(0, 20))
    assert index_of(consumer.receive(20_000)) == 0
    assert eventually(lambda: "A listener raised" in caplog.text)


def test_a_process_ends_well_with_listeners_of_events(program):
    """Many consumers that become active as the program ends: no crash."""
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


def test_many_consumers_come_and_go(client, heard, topic):
    """Two hundred consumers on two threads, each with a listener: at the end just the one that is left is active."""

    def come_and_go(name):
        for number in range(100):
            listener = heard.of(f"{name}{number}")
            client.subscribe(topic, "s", FAILOVER, consumer_event_listener=listener).close()

    threads = [threading.Thread(target=come_and_go, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = client.subscribe(topic, "s", FAILOVER, consumer_event_listener=heard.of("last"))
    assert eventually(lambda: heard.active()[-1:] == ["last"])
    kept.close()
