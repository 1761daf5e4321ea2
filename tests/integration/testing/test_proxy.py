"""The fault proxy in front of a real broker: all traffic passes it, and each fault has its effect."""

import pytest

import pulsar_ext


@pytest.fixture
def proxied(pulsar_fault_proxy, pulsar_client_factory, pulsar_topic):
    """Return a proxy, and a producer and a reader that connect to its URL."""
    proxy = pulsar_fault_proxy()
    client = pulsar_client_factory(service_url=proxy.service_url)
    producer = client.create_producer(pulsar_topic)
    producer.send(b"first")
    return proxy, producer, client.create_reader(pulsar_topic, pulsar_ext.MessageId.earliest)


def contents(reader, count):
    return [reader.read_next(20_000).data() for _ in range(count)]


def test_all_traffic_passes_the_proxy(proxied):
    """Nothing arrives while the proxy is paused, although the broker runs."""
    proxy, producer, reader = proxied
    assert contents(reader, 1) == [b"first"]
    proxy.pause()
    results = []
    producer.send_async(b"second", lambda result, _: results.append(result))
    with pytest.raises(Exception, match=r"(?i)timeout"):
        reader.read_next(500)
    assert results == []
    proxy.resume()
    assert contents(reader, 1) == [b"second"]


def test_cut_reconnects_without_loss(proxied):
    """A cut resets every connection; the client reconnects through the proxy and loses nothing."""
    proxy, producer, reader = proxied
    before = proxy.accepted
    assert proxy.cut() > 0
    producer.send(b"second")
    assert contents(reader, 2) == [b"first", b"second"]
    assert proxy.accepted > before


def test_refuse_prevents_reconnection(proxied):
    """A client reconnects only after connections are accepted again, on the same port."""
    proxy, producer, _ = proxied
    proxy.refuse()
    proxy.cut()
    assert proxy.connections == 0
    results = []
    producer.send_async(b"second", lambda result, _: results.append(result))
    assert proxy.connections == 0
    proxy.accept()
    producer.flush()
    assert len(results) == 1
    assert proxy.connections > 0


def test_closed_proxy_accepts_nothing(pulsar_fault_proxy, pulsar_client_factory, pulsar_topic):
    """A closed proxy has no connection and accepts none; closing it again does nothing."""
    proxy = pulsar_fault_proxy()
    pulsar_client_factory(service_url=proxy.service_url).create_producer(pulsar_topic)
    proxy.close()
    proxy.close()
    proxy.accept()
    assert proxy.connections == 0


@pytest.mark.parametrize("direction", ["to_broker", "to_client"])
def test_pause_in_one_direction(proxied, direction):
    """While one direction is paused no send is confirmed; afterwards the message is stored once."""
    proxy, producer, reader = proxied
    assert contents(reader, 1) == [b"first"]
    proxy.pause(direction)
    results = []
    producer.send_async(b"second", lambda result, _: results.append(result))
    with pytest.raises(Exception, match=r"(?i)timeout"):
        reader.read_next(500)
    assert results == []
    proxy.resume(direction)
    producer.flush()
    assert len(results) == 1
    assert contents(reader, 1) == [b"second"]


def test_slow_network_keeps_the_order(proxied):
    """With latency, jitter and a low bandwidth everything arrives, in order."""
    proxy, producer, reader = proxied
    proxy.delay(0.02, 0.05)
    proxy.limit(200_000)
    for number in range(20):
        producer.send_async(b"%d" % number * 5_000, None)
    producer.flush()
    proxy.heal()
    assert contents(reader, 21) == [b"first", *(b"%d" % number * 5_000 for number in range(20))]


@pytest.mark.parametrize("direction", ["to_broker", "to_client"])
def test_reset_inside_a_frame_loses_nothing(proxied, direction):
    """A connection breaks inside a message's frame; the client reconnects and every message is stored."""
    proxy, producer, reader = proxied
    assert contents(reader, 1) == [b"first"]
    trap = proxy.cut_in_frame(1_000, direction)
    before = proxy.accepted
    producer.send(b"x" * 5_000)
    assert contents(reader, 1) == [b"x" * 5_000]
    assert trap.left == 0
    assert proxy.accepted > before


def test_half_open_connection(proxied):
    """A connection whose broker end is reset delivers nothing until the client's end is reset, too."""
    proxy, producer, reader = proxied
    assert contents(reader, 1) == [b"first"]
    assert proxy.forget("broker") > 0
    results = []
    producer.send_async(b"second", lambda result, _: results.append(result))
    with pytest.raises(Exception, match=r"(?i)timeout"):
        reader.read_next(500)
    assert results == []
    assert proxy.cut() > 0
    producer.flush()
    assert contents(reader, 1) == [b"second"]
