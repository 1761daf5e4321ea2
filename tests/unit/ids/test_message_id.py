"""Ids: equal, ordered and hashable in every form, without crashes."""

from __future__ import annotations

import itertools
import json
import pickle
from random import Random

import _pulsar
import pulsar
import pytest
from damage import damaged
from hypothesis import given, settings
from hypothesis import strategies as st

import pulsar_ext
from pulsar_ext import ChunkMessageId, InvalidMessageId, MessageId
from pulsar_ext.ids.message_id import Origin

POSITIONS = st.integers(0, 2**63 - 2)
INDEXES = st.integers(-1, 2**31 - 1)
PLAIN = st.builds(MessageId, INDEXES, POSITIONS, POSITIONS, INDEXES)


@st.composite
def chunked(draw):
    """Draw the id of a chunked message."""
    partition, ledger = draw(INDEXES), draw(POSITIONS)
    entries = sorted(draw(st.tuples(POSITIONS, POSITIONS)))
    return ChunkMessageId(*(MessageId(partition, ledger, entry) for entry in entries))


IDS = PLAIN | chunked()

FORMS = {
    "deserialized": lambda i: MessageId.deserialize(i.serialize()),
    "parsed": lambda i: MessageId.parse(i.to_text()),
    "parsed from str()": lambda i: MessageId.parse(str(i)),
    "pickled": lambda i: pickle.loads(pickle.dumps(i)),
    "json": lambda i: MessageId.from_dict(json.loads(json.dumps(i.to_dict()))),
}


@pytest.mark.parametrize("form", FORMS)
@given(IDS)
def test_every_form_is_the_same_id(form, message_id):
    """Bytes, text, pickle and JSON restore an equal id with an equal hash, chunked if it was chunked."""
    again = FORMS[form](message_id)
    assert again == message_id
    assert (again != message_id) is False
    assert hash(again) == hash(message_id)
    assert type(again) is type(message_id)
    assert again.to_text() == message_id.to_text()


@given(st.lists(PLAIN, max_size=6))
def test_ids_are_ordered_as_in_java(ids):
    """Ids are ordered by ledger, entry, partition and batch index, by every comparison."""

    def key(i):
        return i.ledger_id(), i.entry_id(), i.partition(), i.batch_index()

    assert [key(i) for i in sorted(ids)] == sorted(key(i) for i in ids)
    for one, two in itertools.product(ids, ids):
        assert (one < two, one <= two, one > two, one >= two, one == two) == (
            key(one) < key(two),
            key(one) <= key(two),
            key(one) > key(two),
            key(one) >= key(two),
            key(one) == key(two),
        )


def test_plain_id_is_less_than_id_in_batch():
    """The id 5:7 is less than 5:7 with batch index 0, as in Java."""
    assert MessageId(-1, 5, 7) < MessageId(-1, 5, 7, 0) < MessageId(-1, 5, 7, 1)


@given(chunked())
def test_chunked_id_counts_as_its_last_chunk(message_id):
    """A chunked id equals, hashes and compares as the plain id of its last chunk, and keeps its first chunk."""
    last = message_id.last_chunk_message_id()
    assert message_id == last
    assert hash(message_id) == hash(last)
    assert {message_id: 1}[last] == 1
    assert message_id.first_chunk_message_id() <= last
    assert (message_id.ledger_id(), message_id.entry_id()) == (last.ledger_id(), last.entry_id())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("08051007", "5:7:-1"),
        ("080510073000", "5:7:-1"),
        ("0805100718033000", "5:7:3"),
        ("080510072002300a", "5:7:-1:2"),
        ("0805100730003a06080510053000", "5:5:-1;5:7:-1"),
        ("080510073a0408051005", "5:5:-1;5:7:-1"),
    ],
)
def test_bytes_of_both_clients_are_kept(data, text):
    """Recorded bytes of the Java and the Python client have Java's text, and are serialized unchanged."""
    message_id = MessageId.deserialize(bytes.fromhex(data))
    assert message_id.to_text() == text
    assert message_id.serialize().hex() == data
    assert MessageId.parse(text) == message_id


@given(PLAIN)
def test_official_ids_compare_with_ours(message_id):
    """An official id and a native id of the same message are equal to ours, and ordered with it."""
    numbers = message_id.partition(), message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
    assert message_id == pulsar.MessageId(*numbers)
    assert message_id == _pulsar.MessageId(*numbers)
    assert message_id > _pulsar.MessageId.earliest
    assert MessageId.wrap(_pulsar.MessageId(*numbers)) == message_id


def test_id_does_not_equal_other_types():
    """Comparison with other types is False, and their order raises TypeError."""
    assert MessageId(-1, 1, 1) != "1:1:-1"
    assert (MessageId(-1, 1, 1) == None) is False  # noqa: E711
    with pytest.raises(TypeError):
        _ = MessageId(-1, 1, 1) < 5


@settings(max_examples=100)
@given(IDS, st.integers(0, 2**32).map(Random))
def test_garbage_bytes_raise_or_are_an_id(good, random):
    """100,000 damaged ids and random bytes raise InvalidMessageId, or are an id with the same bytes."""
    for garbage in damaged(good.serialize(), random, 1000):
        try:
            message_id = MessageId.deserialize(garbage)
        except InvalidMessageId:
            continue
        assert message_id.serialize() == garbage
        assert message_id.ledger_id() >= -1
        assert MessageId.deserialize(garbage) == message_id


@settings(max_examples=1_000)
@given(st.text(max_size=30) | st.text("0123456789:;,()- ", max_size=40))
def test_bad_text_raises_or_is_an_id(text):
    """Random text raises InvalidMessageId, or is an id whose text can be parsed."""
    try:
        message_id = MessageId.parse(text)
    except InvalidMessageId:
        return
    assert MessageId.parse(message_id.to_text()) == message_id


@pytest.mark.parametrize(
    "make",
    [
        lambda: MessageId.deserialize("080510073000"),
        lambda: MessageId.deserialize(None),
        lambda: MessageId.parse(b"5:7:-1"),
        lambda: MessageId.parse("5:5:-1;5:7:-1;5:9:-1"),
        lambda: MessageId.parse("5:7:99999999999"),
        lambda: MessageId(-2, 5, 7),
        lambda: MessageId(0, 2**63, 7),
        lambda: MessageId(2**31, 5, 7),
        lambda: ChunkMessageId(MessageId(-1, 5, 7), MessageId(-1, 5, 5)),
        lambda: ChunkMessageId(MessageId(0, 5, 5), MessageId(1, 5, 7)),
        lambda: ChunkMessageId(MessageId(-1, 5, 5, 0), MessageId(-1, 5, 7)),
        lambda: MessageId.from_dict({"ledger_id": 5}),
        lambda: MessageId.from_dict({"ledger_id": 5, "entry_id": "7"}),
        lambda: MessageId.from_dict({"ledger_id": 5, "entry_id": 7, "origin": "nowhere"}),
    ],
)
def test_invalid_id_raises_invalid_message_id(make):
    """Invalid arguments raise InvalidMessageId, which `except ValueError` and `except PulsarException` catch."""
    with pytest.raises(InvalidMessageId) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, pulsar.PulsarException)


@pytest.mark.parametrize("wrong", [1.0, "1", None])
def test_non_integer_number_of_id_raises(wrong):
    """A number that is not an integer raises TypeError, as in the official client; a bool counts as 0 or 1."""
    for place in range(4):
        with pytest.raises(TypeError):
            MessageId(*[1] * place, wrong)
    assert MessageId(*[True] * 3).to_text() == "1:1:1"


def test_origin_of_ids():
    """Ids of numbers and text have another origin than ids of bytes, also after pickle and JSON."""
    assert MessageId(-1, 5, 7).origin is Origin.NUMBERS
    assert MessageId.parse("5:7:-1").origin is Origin.NUMBERS
    assert MessageId.deserialize(bytes.fromhex("08051007")).origin is Origin.BYTES
    assert pickle.loads(pickle.dumps(MessageId(-1, 5, 7))).origin is Origin.NUMBERS
    assert MessageId.from_dict(MessageId(-1, 5, 7).to_dict()).origin is Origin.NUMBERS


def test_topic_of_id_is_serialized():
    """The topic of an id survives pickle and JSON."""
    message_id = MessageId.deserialize(bytes.fromhex("08051007"), topic="persistent://a/b/c")
    assert message_id.topic_name() == "persistent://a/b/c"
    assert pickle.loads(pickle.dumps(message_id)).topic_name() == "persistent://a/b/c"
    assert MessageId.from_dict(message_id.to_dict()).topic_name() == "persistent://a/b/c"


def test_earliest_and_latest_equal_official():
    """Earliest and latest equal the official constants."""
    assert MessageId.earliest == _pulsar.MessageId.earliest
    assert MessageId.latest == _pulsar.MessageId.latest
    assert MessageId.earliest < MessageId(-1, 0, 0) < MessageId.latest
    assert MessageId() == pulsar_ext.MessageId.earliest
