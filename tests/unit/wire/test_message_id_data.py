"""The codec of message ids: strict, lossless, and equal to protobuf's."""

from __future__ import annotations

from random import Random

import pytest
from damage import damaged
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_ext._wire.message_id_data import MessageIdData, decode, encode
from pulsar_ext.errors import InvalidMessageId

_NUMBER, _MESSAGE = descriptor_pb2.FieldDescriptorProto, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_FIELDS = [
    ("ledgerId", 1, _NUMBER.TYPE_UINT64, _NUMBER.LABEL_REQUIRED),
    ("entryId", 2, _NUMBER.TYPE_UINT64, _NUMBER.LABEL_REQUIRED),
    ("partition", 3, _NUMBER.TYPE_INT32, _NUMBER.LABEL_OPTIONAL),
    ("batch_index", 4, _NUMBER.TYPE_INT32, _NUMBER.LABEL_OPTIONAL),
    ("ack_set", 5, _NUMBER.TYPE_INT64, _NUMBER.LABEL_REPEATED),
    ("batch_size", 6, _NUMBER.TYPE_INT32, _NUMBER.LABEL_OPTIONAL),
    ("first_chunk_message_id", 7, _MESSAGE, _NUMBER.LABEL_OPTIONAL),
]

POSITIONS = st.integers(-1, 2**63 - 1)
INDEXES = st.integers(-1, 2**31 - 1)
PLAIN = st.builds(MessageIdData, POSITIONS, POSITIONS, INDEXES)
IDS = st.builds(
    MessageIdData,
    POSITIONS,
    POSITIONS,
    INDEXES,
    INDEXES,
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple),
    st.integers(0, 2**31 - 1),
    st.none() | PLAIN,
)


def _protobuf_class():
    file = descriptor_pb2.FileDescriptorProto(name="id.proto", package="t", syntax="proto2")
    message = file.message_type.add(name="MessageIdData")
    for name, number, kind, label in _FIELDS:
        field = message.field.add(name=name, number=number, type=kind, label=label)
        if kind == _MESSAGE:
            field.type_name = ".t.MessageIdData"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.MessageIdData"))


Proto = _protobuf_class()


def _to_proto(data: MessageIdData):
    proto = Proto(ledgerId=data.ledger_id % 2**64, entryId=data.entry_id % 2**64, ack_set=data.ack_set)
    if data.partition != -1:
        proto.partition = data.partition
    if data.batch_index != -1:
        proto.batch_index = data.batch_index
    if data.batch_size:
        proto.batch_size = data.batch_size
    if data.first_chunk is not None:
        proto.first_chunk_message_id.CopyFrom(_to_proto(data.first_chunk))
    return proto


@given(IDS)
def test_decode_inverts_encode(data):
    """Encoding loses nothing."""
    assert decode(encode(data)) == data


@given(IDS)
def test_encoding_equals_protobuf(data):
    """Protobuf writes the same bytes and reads ours."""
    assert encode(data) == _to_proto(data).SerializeToString(deterministic=True)
    assert Proto.FromString(encode(data)) == _to_proto(data)


@given(IDS, st.integers(8, 500), st.binary(max_size=20))
def test_unknown_fields_survive_round_trip(data, field, content):
    """An unknown field is written back unchanged."""
    tag = bytearray()
    value = field << 3 | 2
    while value >= 0x80:
        tag.append(value & 0x7F | 0x80)
        value >>= 7
    raw = encode(data) + bytes([*tag, value, len(content)]) + content
    assert encode(decode(raw)) == raw


@settings(max_examples=100)
@given(IDS, st.integers(0, 2**32).map(Random))
def test_damaged_ids_are_rejected_like_protobuf(data, random):
    """Each damaged or random id is rejected with InvalidMessageId, or equals what protobuf reads."""
    for garbage in damaged(encode(data), random, 1000):
        try:
            read = decode(garbage)
        except InvalidMessageId:
            continue
        proto = Proto.FromString(garbage)
        assert (proto.ledgerId, proto.entryId) == (read.ledger_id % 2**64, read.entry_id % 2**64)
        assert list(proto.ack_set) == list(read.ack_set)


@given(IDS, st.data())
def test_truncated_id_is_rejected_inside_a_field(data, draw):
    """An id truncated inside a field is rejected."""
    raw = encode(data)
    cut = raw[: draw.draw(st.integers(0, len(raw) - 1))]
    try:
        whole = Proto.FromString(cut).IsInitialized()
    except DecodeError:
        whole = False
    if whole:
        assert decode(cut).ledger_id == data.ledger_id
    else:
        with pytest.raises(InvalidMessageId):
            decode(cut)


@pytest.mark.parametrize("wrong", ["08051007", 5, None, b"", b"\x08\x05", b"\x08\x05\x10", b"\x00" * 9, b"x" * 70_000])
def test_invalid_id_bytes_raise(wrong):
    """Text, integers, None, truncated ids and too many bytes raise."""
    with pytest.raises(InvalidMessageId):
        decode(wrong)
