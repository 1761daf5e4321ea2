"""Batches that were begun when `process()` was ended: only their rest is handled, until a timeout."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.process import BegunBatches


@dataclass
class _Message:
    """A message of a batch of `size` messages, in entry `entry` of a topic."""

    topic: str
    entry: int
    index: int
    size: int

    @property
    def inner(self):
        return self

    def message_id(self):
        return self

    def topic_name(self):
        return self.topic

    def serialize(self):
        return encode(MessageIdData(1, self.entry, batch_index=self.index, batch_size=self.size))


def begun(*messages, timeout_ms=1_000, asked=None):
    batches = BegunBatches(timeout_ms, (lambda _: None) if asked is None else asked.append)
    for message in messages:
        batches.note(message)
    return batches


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5)), max_size=6), st.randoms())
def test_whole_batches_leave_no_batch_open(kinds, random):
    """Whole batches, interleaved between topics, leave no batch open; without the last message, one is open."""
    queues = {topic: [] for topic in "ab"}
    for entry, (topic, size) in enumerate(kinds):
        queues[topic] += [_Message(topic, entry, index, size) for index in range(size)]
    messages = []
    while any(queues.values()):
        messages.append(queues[random.choice([topic for topic in queues if queues[topic]])].pop(0))
    assert begun(*messages).seconds_left(0.0) == 0.0
    if messages and (last := messages[-1]).size > 1:
        assert begun(*messages[:-1]).seconds_left(0.0) > 0.0, last


def test_unbatched_messages_and_chunks_leave_no_batch_open():
    """An id without a batch index refers to a whole entry."""
    assert begun(_Message("a", 3, -1, 0)).seconds_left(0.0) == 0.0


def test_rest_of_a_batch_is_handled_until_the_timeout():
    """The timeout begins with the first query, and does not begin again."""
    batches = begun(_Message("a", 0, 0, 3))
    assert batches.seconds_left(10.0) == 1.0
    batches.note(_Message("a", 0, 1, 3))
    assert batches.seconds_left(10.75) == 0.25
    assert batches.seconds_left(12.0) == 0.0


def test_timeout_of_0_handles_no_more_messages():
    """With `batch_timeout_ms=0` the rest of a batch is left to redelivery."""
    asked = []
    assert begun(_Message("a", 0, 0, 3), timeout_ms=0, asked=asked).seconds_left(0.0) == 0.0
    assert asked == []


def test_batch_index_acks_end_the_handling():
    """The broker is queried once; only the answer True ends the handling, not False and not None."""
    asked = []
    batches = begun(_Message("a", 0, 0, 3), asked=asked)
    batches.seconds_left(0.0)
    for answer, left in ((None, 0.5), (False, 0.5), (True, 0.0)):
        asked[0](answer)
        assert batches.seconds_left(0.5) == left
    assert len(asked) == 1


def test_another_entry_completes_a_compacted_batch():
    """After compaction removed the last messages of a batch, the next message is not handled, without waiting."""
    batches = begun(_Message("a", 0, 0, 3), _Message("b", 7, 0, 2))
    assert batches.note(_Message("a", 1, 0, 3)), "before the end each message is handled"
    assert batches.seconds_left(10.0) == 1.0
    assert batches.note(_Message("a", 1, 1, 3))
    assert not batches.note(_Message("a", 2, 0, 3))
    assert batches.seconds_left(10.5) == 0.5
    assert batches.note(_Message("b", 7, 1, 2))
    assert batches.seconds_left(10.5) == 0.0
