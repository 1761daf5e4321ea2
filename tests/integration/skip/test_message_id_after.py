"""The id of the message N later."""

import itertools

import pytest
from skip_bench import (
    COUNT,
    INDEXED,
    KINDS,
    PLAIN,
    on,
)

import pulsar_ext

BOTH_CLIENTS = True


@pytest.mark.core
@on(PLAIN, INDEXED)
@pytest.mark.parametrize("kind", KINDS)
def test_message_id_after(bench, kind):
    """The message N later is the one that a reader reads N later, across ledgers; past the end the result is None."""
    topic = bench.topic()
    ids = [at for _, at in bench.fill(topic, kind)]
    for start, count in itertools.product(range(0, COUNT, 5), (0, 1, 6, COUNT)):
        expected = ids[start + count] if start + count < len(ids) else None
        found = bench.client.message_id_after(topic, ids[start], count)
        assert found == expected
        assert type(found) is type(expected)
    third = bench.client.message_id_after(topic, pulsar_ext.MessageId.earliest, 3)
    reader = bench.client.create_reader(topic, third, start_message_id_inclusive=True)
    assert reader.read_next(5000).message_id() == ids[2]
    reader.close()
