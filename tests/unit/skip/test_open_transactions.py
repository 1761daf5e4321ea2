"""The end of a topic with open transactions, against its list of entries."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.ids.position import Ledgers
from pulsar_ext.skip.boundaries import before_open_transactions


@given(st.lists(st.integers(0, 9), max_size=6), st.data())
def test_topic_ends_before_open_transactions(sizes, data):
    """Exactly the entries before the open transaction are kept, for any ledgers."""
    ledgers = Ledgers((3 * number, size) for number, size in enumerate(sizes))
    readable = data.draw(st.integers(0, sum(sizes)))

    def headers(position):
        return SimpleNamespace(txn_uncommitted=ledgers.up_to(position) > readable)

    found = before_open_transactions(ledgers, headers)
    assert (0 if found.last is None else found.up_to(found.last)) == readable
    assert found.last == ledgers.number(readable)
