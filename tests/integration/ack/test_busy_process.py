"""A process that is too busy to look at its connection, while it acknowledges one message after the other."""

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
def test_acknowledgements_on_their_way_are_no_cursor_that_went_back(client_factory, broker, topic, caplog, how):
    """No thread runs for 0.2 s, twice, amid 2,000 messages a second: none of 28,000 comes twice, or is missing."""
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
            _LIBC.usleep(200_000)  # with the interpreter's lock
    thread.join()
    assert found == list(range(count))
    consumer.flush_acks(confirm=True)
    assert "went back" not in caplog.text
