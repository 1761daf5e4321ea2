"""The error of a receive that times out."""

import traceback

import pytest

import pulsar_ext as pulsar


@pytest.mark.parametrize("timeout_millis", [10, 1000])
def test_receive_timeout_is_a_single_error(client, topic, timeout_millis):
    """The traceback of a timeout shows one exception, as the official client's does."""
    consumer = client.subscribe(topic, "s")
    with pytest.raises(pulsar.Timeout) as caught:
        consumer.receive(timeout_millis)
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1
