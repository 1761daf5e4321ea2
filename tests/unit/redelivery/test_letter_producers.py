"""The producers of a consumer's letters: each that was opened is closed."""

from __future__ import annotations

from types import SimpleNamespace

import pulsar
import pytest
from pulsar.schema import BytesSchema

from pulsar_ext.errors import AdminUnavailable
from pulsar_ext.redelivery.letters import LetterProducers


class _Producer:
    """Sends, until it was closed by itself."""

    def __init__(self):
        self.sender = SimpleNamespace(closed=False)
        self.meanwhile = lambda: None

    def send(self, *_, **__):
        if self.sender.closed:
            self.meanwhile()
            raise pulsar.AlreadyClosed("closed")

    def close(self):
        self.sender.closed = True


def no_admin():
    """Be a client that may ask no admin API."""
    raise AdminUnavailable("none")


def test_a_producer_that_another_thread_opened_meanwhile_is_kept_and_closed():
    """Where two letters meet a producer that has closed, the second failure leaves the new producer alone."""
    opened = []

    def create_producer(*_, **__):
        opened.append(_Producer())
        return opened[-1]

    none = {"partition_key": str, "ordering_key": str, "event_timestamp": int, "topic_name": str, "properties": dict}
    inner = SimpleNamespace(has_null_value=lambda: True, int_schema_version=lambda: -1, **none)
    opener = SimpleNamespace(create_producer=create_producer)
    cluster = SimpleNamespace(number=lambda: 0)
    context = SimpleNamespace(opener=opener, schema_info=None, admin_api=no_admin, cluster=cluster)
    letters = LetterProducers(context, BytesSchema())
    letters.send("t", inner, {})

    def another_thread():
        opened[0].meanwhile = lambda: None
        with pytest.raises(pulsar.AlreadyClosed):
            letters.send("t", inner, {})
        letters.send("t", inner, {})

    opened[0].close()
    opened[0].meanwhile = another_thread
    with pytest.raises(pulsar.AlreadyClosed):
        letters.send("t", inner, {})
    letters.send("t", inner, {})
    letters.close()
    assert [one.sender.closed for one in opened] == [True, True]
