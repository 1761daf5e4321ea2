"""A process that is too busy to poll its connection while it acknowledges many messages."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest
from chunked import index_of, payload

SECONDS, PER_SECOND = 14.0, 2000
STALLS = (4.0, 8.0)
RECEIVE_MILLIS = 20_000
_LIBC = ctypes.PyDLL(None)


@pytest.mark.parametrize("how", ["acknowledge", "acknowledge_cumulative"])
def test_acks_in_flight_are_not_a_cursor_reset(client_factory, broker, topic, caplog, how):
    """After two stalls of 0.2 s at 2,000 messages a second, none of 28,000 is duplicated or missing."""
    sender, client = client_factory(broker), client_factory(broker)
    consumer = client.subscribe(topic, "s")
    count, began = int(SECONDS * PER_SECOND), time.monotonic()

    def send() -> None:
        producer = sender.create_producer(topic, block_if_queue_full=True)
        for index in range(count):
            if (early := began + index / PER_SECOND - time.monotonic()) > 0:
                time.sleep(early)
            producer.send_async(payload(index, 20), None)
        producer.flush()

    thread = threading.Thread(target=send)
    thread.start()
    found, stalls = [], list(STALLS)
    for _ in range(count):
        message = consumer.receive(RECEIVE_MILLIS)
        found.append(index_of(message))
        getattr(consumer, how)(message)
        if stalls and time.monotonic() - began > stalls[0]:
            del stalls[0]
            _LIBC.usleep(200_000)  # holding the interpreter's lock
    thread.join()
    assert found == list(range(count))
    consumer.flush_acks(confirm=True)
    assert "moved back" not in caplog.text
