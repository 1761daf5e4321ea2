"""The end up to which a new table view reads: the last ids of that moment, whatever is written later."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext import MessageId
from pulsar_ext.table_view import End


@dataclass
class _Message:
    topic: str
    place: tuple[int, int, int]

    def topic_name(self):
        return self.topic

    def message_id(self):
        ledger_id, entry_id, batch_index = self.place
        made = MessageId(-1, ledger_id, entry_id, batch_index)
        made.topic_name(self.topic)
        return made


PLACES = st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(-1, 2))


@given(st.dictionaries(st.sampled_from("abc"), st.lists(PLACES, unique=True, min_size=1)), st.data())
def test_end_is_reached_with_the_last_message_of_each_topic(places, data):
    """The end is reached when each topic's last message or a later one was read, whenever the end becomes known."""
    queues = {topic: sorted(some) for topic, some in places.items()}
    ends = {topic: data.draw(st.sampled_from(some)) for topic, some in queues.items()}
    known_after = data.draw(st.integers(0, 10))
    end, read = End(), {}
    for number in range(sum(map(len, queues.values())) + 1):
        if number == known_after:
            end.find([_Message(topic, place).message_id() for topic, place in ends.items()])
        reached = all(topic in read and read[topic] >= place for topic, place in ends.items())
        assert end.is_reached == (number >= known_after and reached)
        if unread := [topic for topic in sorted(queues) if queues[topic]]:
            topic = data.draw(st.sampled_from(unread))
            read[topic] = queues[topic].pop(0)
            end.note(_Message(topic, read[topic]))


def test_end_of_an_empty_topic_is_reached_at_once():
    """A last id whose entry is -1 belongs to an empty topic."""
    end = End()
    end.find([_Message("a", (3, -1, -1)).message_id()])
    assert end.is_reached
