"""The producers of a consumer's letters: each opened producer is closed."""

from __future__ import annotations

from types import SimpleNamespace

import pulsar
import pytest
from pulsar.schema import BytesSchema

from pulsar_ext.errors import AdminUnavailable
from pulsar_ext.redelivery.letters import Letter, LetterProducers


class _Producer:
    """A fake producer that can be closed by itself."""

    def __init__(self):
        self.sender = SimpleNamespace(closed=False)
        self.before_error = lambda: None

    def send(self, *_, **__):
        if self.sender.closed:
            self.before_error()
            raise pulsar.AlreadyClosed("closed")

    def close(self):
        self.sender.closed = True


def raise_admin_unavailable():
    """Raise as an admin API that does not answer."""
    raise AdminUnavailable("none")


def test_producer_opened_by_another_thread_is_kept():
    """A second failure with a closed producer does not remove the producer that another thread opened."""
    opened = []

    def create_producer(*_, **__):
        opened.append(_Producer())
        return opened[-1]

    empty = {"partition_key": str, "ordering_key": str, "event_timestamp": int, "topic_name": str, "properties": dict}
    inner = SimpleNamespace(has_null_value=lambda: True, int_schema_version=lambda: -1, **empty)
    opener = SimpleNamespace(create_producer=create_producer)
    cluster = SimpleNamespace(number=lambda: 0)
    context = SimpleNamespace(opener=opener, schema_info=None, admin_api=raise_admin_unavailable, cluster=cluster)
    letters = LetterProducers(context, BytesSchema())
    letters.send(Letter("t", inner, {}))

    def another_thread():
        opened[0].before_error = lambda: None
        with pytest.raises(pulsar.AlreadyClosed):
            letters.send(Letter("t", inner, {}))
        letters.send(Letter("t", inner, {}))

    opened[0].close()
    opened[0].before_error = another_thread
    with pytest.raises(pulsar.AlreadyClosed):
        letters.send(Letter("t", inner, {}))
    letters.send(Letter("t", inner, {}))
    letters.close()
    assert [one.sender.closed for one in opened] == [True, True]
