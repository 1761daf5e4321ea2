"""The message N later, against the list of all messages."""

from hypothesis import given, settings
from hypothesis import strategies as st
from skip_model import Topic, topics

from pulsar_ext._wire.message_id_data import MessageIdData
from pulsar_ext.skip.boundaries import Backlog
from pulsar_ext.skip.skipper import find_after


@settings(max_examples=200)
@given(st.data(), st.integers(0, 20), st.integers(1, 12), st.booleans())
def test_message_after(data, start, count, index):
    """The message N later is the one that a reader receives N later; past the end it is None."""
    entries, sizes = data.draw(topics(least=2 if index else 1))
    topic = Topic(entries, sizes, index=index)
    messages = topic.whole()
    if start >= len(messages):
        return
    position, batch_index, _ = messages[start]
    asked = -1 if topic.stored[position].messages == 1 else batch_index
    found = find_after(
        topic, Backlog(topic.backlog.ledgers, position), asked, count, unbatched=False, chunked=False, entry_bytes=100.0
    )
    if start + count >= len(messages):
        assert found is None
        return
    at, inside, chunks = messages[start + count]
    size = topic.stored[at].messages
    first = MessageIdData(*chunks[0]) if len(chunks) > 1 else None
    batch = {"batch_index": inside, "batch_size": size} if size > 1 else {}
    assert found == MessageIdData(*at, **batch, first_chunk=first)
