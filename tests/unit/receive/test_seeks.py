"""Targets of seeks on several topics and partitions, and topics that a pattern matches."""

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
    """Return an id, with a topic if one is passed."""
    made = pulsar.MessageId(partition, 5, 7)
    if topic is not None:
        made.topic_name(topic)
    return made


def test_topic_names_are_accepted_in_every_form():
    """Short names, names without a scheme, and a partitioned topic's name for all its partitions are accepted."""
    assert targets_by_topic({"a": 1, "public/default/b": LATEST}, TOPICS) == {A: 1, **dict.fromkeys(PARTS, LATEST)}
    assert targets_by_topic({PARTS[1]: 5}, TOPICS) == {PARTS[1]: 5}


def test_id_moves_its_own_partition():
    """An id moves the partition of its index, or of the topic it knows."""
    assert targets_by_topic({B: id_of(2)}, TOPICS) == {PARTS[2]: id_of(2)}
    assert target_of_each(id_of(1, B), TOPICS) == {PARTS[1]: id_of(1)}
    assert target_of_each(id_of(-1, A), TOPICS) == {A: id_of()}


@pytest.mark.parametrize(
    "targets",
    [{"c": EARLIEST}, {B: id_of()}, {B: id_of(3)}, {B: 1, PARTS[0]: 1}, {A: "then"}, {A: None}, {3: 1}, {"a/b": 1}],
)
def test_ambiguous_targets_raise(targets):
    """Unknown topics, ids of no or unknown partitions, duplicate targets and invalid targets raise."""
    with pytest.raises(pulsar.PulsarExtError):
        targets_by_topic(targets, TOPICS)


@given(st.sampled_from([EARLIEST, LATEST, 0, 10**12]))
def test_ends_and_times_move_every_topic(target):
    """The earliest id, the latest id and a time move all topics."""
    assert target_of_each(target, TOPICS) == dict.fromkeys(TOPICS, target)
    assert target_of_each(target, []) == {}


def test_id_without_topic_needs_a_single_topic():
    """An id without a topic moves a single topic, and raises for several."""
    assert target_of_each(id_of(), [A]) == {A: id_of()}
    with pytest.raises(pulsar.InvalidUse, match=r"topic of .* is unknown"):
        target_of_each(id_of(), TOPICS)


def test_pattern_matches_whole_names_without_scheme():
    """A pattern matches whole names as in the other clients; partitions count as their topic, and flags are kept."""
    assert matching(re.compile("persistent://public/default/."), TOPICS) == [A, B]
    assert matching(re.compile("public/default/b"), TOPICS) == [B]
    assert matching(re.compile("persistent://public/default/A", re.IGNORECASE), TOPICS) == [A]
    assert matching(re.compile("persistent://public/default"), TOPICS) == []
