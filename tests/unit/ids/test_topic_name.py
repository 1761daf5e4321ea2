"""Topic names: valid and invalid texts, and their URLs."""

import pickle
import string
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulsar import InvalidTopicName

from pulsar_ext.errors import InvalidTopic, InvalidUse
from pulsar_ext.ids.topic_name import TopicName

_NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: "://" not in name and name not in {".", ".."}
)
_ENTITIES = st.text(f"-=:._{string.ascii_letters}{string.digits}", min_size=1, max_size=20).filter(
    lambda text: text not in {".", ".."}
)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("topic", "persistent://public/default/topic"),
        ("t/n/topic", "persistent://t/n/topic"),
        ("persistent://t/n/topic", "persistent://t/n/topic"),
        ("non-persistent://t/n/topic", "non-persistent://t/n/topic"),
        ("a b%c?d#e+é", "persistent://public/default/a b%c?d#e+é"),
    ],
)
def test_short_and_full_forms_of_topic_name(text, full):
    """Each form that Java's TopicName.get accepts has the same full name, which can be parsed."""
    assert str(TopicName.parse(text)) == full
    assert TopicName.parse(full) == TopicName.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b",
        "t/n/",
        "t//topic",
        "/n/topic",
        "t/n/a/b",
        "persistent://topic",
        "persistent://t/n",
        "persistent://t/n/a/b",
        "http://t/n/topic",
        "persistent://t t/n/topic",
        "persistent://t/nämespace/topic",
        "t/n/\ud800",
        "topic://t/n/scalable",
        "segment://t/n/scalable/0-1",
        None,
        b"topic",
        7,
    ],
)
def test_invalid_topic_name_raises(text):
    """Invalid names and scalable topics raise InvalidTopic; a slash is invalid, as for the broker."""
    with pytest.raises(InvalidTopic) as caught:
        TopicName.parse(text)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, InvalidTopicName)


@given(_ENTITIES, _ENTITIES, _NAMES)
def test_full_name_and_url_round_trip(tenant, namespace, name):
    """Any name survives str and parse; its REST path decodes to it and has four segments."""
    topic = TopicName("persistent", tenant, namespace, name)
    assert TopicName.parse(str(topic)) == topic
    assert pickle.loads(pickle.dumps(topic)) == topic
    url = urlsplit(f"http://h/admin/v2/{topic.rest_path}/stats")
    assert (url.query, url.fragment) == ("", "")
    segments = url.path.split("/")
    assert segments[3:6] == ["persistent", tenant, namespace]
    assert unquote(segments[6], errors="strict") == name
    assert "+" not in segments[6]
    assert segments[7:] == ["stats"]


@pytest.mark.parametrize("name", [".", ".."])
def test_topic_name_of_dots_has_no_url(name):
    """A name of dots could address another resource, so its URL raises."""
    with pytest.raises(InvalidUse, match="REST"):
        _ = TopicName("persistent", "t", "n", name).rest_path


@given(_NAMES.filter(lambda name: "-partition-" not in name), st.integers(0, 2**31 - 1))
def test_partition_and_parent_are_inverse(name, index):
    """partition(i) returns a partition whose index is i and whose parent is the topic."""
    topic = TopicName("persistent", "t", "n", name)
    partition = topic.partition(index)
    assert not topic.is_partition
    assert topic.parent == topic
    assert partition.is_partition
    assert partition.partition_index == index
    assert partition.parent == topic


@pytest.mark.parametrize(
    "name",
    ["a-partition-", "a-partition-01", "a-partition--1", "-partition-0", "a-partition-x", f"a-partition-{2**31}"],
)
def test_invalid_partition_suffix(name):
    """The index must be the plain decimal form of an int, as in Java."""
    assert TopicName.parse(name).partition_index == -1


@pytest.mark.parametrize(("name", "index"), [("a", -1), ("a", 2**31), ("a-partition-0", 0)])
def test_invalid_partition_index_raises(name, index):
    """Negative indexes and partitions of partitions raise."""
    with pytest.raises(InvalidUse):
        TopicName.parse(name).partition(index)
