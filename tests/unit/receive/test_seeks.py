"""Which of several topics and partitions are to go where, and which topics a pattern matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulsar_ext as pulsar
from pulsar_ext.receive.seeks import matching, target_of_each, targets_by_topic

EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest
A, B = "persistent://public/default/a", "persistent://public/default/b"
PARTS = [f"{B}-partition-{index}" for index in range(3)]
TOPICS = [A, *PARTS]


def id_of(partition=-1, topic=None):
    """An id, with its topic if one is given."""
    made = pulsar.MessageId(partition, 5, 7)
    if topic is not None:
        made.topic_name(topic)
    return made


def test_names_are_taken_in_every_form():
    """Short names, names without their scheme, and a partitioned topic's own for all its partitions."""
    assert targets_by_topic({"a": 1, "public/default/b": LATEST}, TOPICS) == {A: 1, **dict.fromkeys(PARTS, LATEST)}
    assert targets_by_topic({PARTS[1]: 5}, TOPICS) == {PARTS[1]: 5}


def test_an_id_moves_its_own_partition():
    """By the number in it, and by the topic that it knows."""
    assert targets_by_topic({B: id_of(2)}, TOPICS) == {PARTS[2]: id_of(2)}
    assert target_of_each(id_of(1, B), TOPICS) == {PARTS[1]: id_of(1)}
    assert target_of_each(id_of(-1, A), TOPICS) == {A: id_of()}


@pytest.mark.parametrize(
    "targets",
    [{"c": EARLIEST}, {B: id_of()}, {B: id_of(3)}, {B: 1, PARTS[0]: 1}, {A: "then"}, {A: None}, {3: 1}, {"a/b": 1}],
)
def test_what_is_not_clear_is_refused(targets):
    """Unknown topics, ids without or of unknown partitions, two targets, and what is no target."""
    with pytest.raises(pulsar.PulsarExtError):
        targets_by_topic(targets, TOPICS)


@given(st.sampled_from([EARLIEST, LATEST, 0, 10**12]))
def test_an_end_and_a_time_are_for_all(target):
    """Whatever topics there are."""
    assert target_of_each(target, TOPICS) == dict.fromkeys(TOPICS, target)
    assert target_of_each(target, []) == {}


def test_an_id_without_its_topic_is_only_clear_of_one_topic():
    """Of one it moves that one."""
    assert target_of_each(id_of(), [A]) == {A: id_of()}
    with pytest.raises(pulsar.InvalidUse, match="does not say which topic"):
        target_of_each(id_of(), TOPICS)


def test_a_pattern_matches_whole_names_without_their_scheme():
    """As the other clients' consumers; partitions count as their topic, and flags are kept."""
    assert matching(re.compile("persistent://public/default/."), TOPICS) == [A, B]
    assert matching(re.compile("public/default/b"), TOPICS) == [B]
    assert matching(re.compile("persistent://public/default/A", re.IGNORECASE), TOPICS) == [A]
    assert matching(re.compile("persistent://public/default"), TOPICS) == []
