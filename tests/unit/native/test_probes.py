"""Requirements on the installed official client are checked on objects, and missing ones are named."""

from __future__ import annotations

import ctypes
import json

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema
import pytest

import pulsar_ext
from pulsar_ext import _native as probes
from pulsar_ext._native import (
    c_api,
    consumer_settings,
    message_index,
    messages,
    replicated,
    schemas,
)
from pulsar_ext._native.handles import consumers_of
from pulsar_ext.cli import command_line
from pulsar_ext.client.features import FEATURES, unavailable_features
from pulsar_ext.errors import InvalidUse

_LEVEL, _PROPERTIES, _LISTENER, _REPLICATED, _INDEX, _SLOTS, _AVRO = FEATURES


@pytest.fixture(autouse=True)
def _fresh_checks():
    """Check each feature again in this test and after it."""
    caches = [one for one in (*FEATURES.values(), c_api._type_info, c_api._builds) if hasattr(one, "cache_clear")]
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_everything_works_with_the_installed_client(monkeypatch):
    """Nothing is missing and all features are available, whatever the version."""
    monkeypatch.setattr(pulsar, "__version__", "3.99.0")
    assert probes.lacking() == []
    assert unavailable_features() == {}


@pytest.mark.parametrize(("kind", "name"), [(kind, names.split()[0]) for kind, names in probes._NAMES.items()])
def test_missing_binding_name_is_reported(monkeypatch, kind, name):
    """A C++ class without a required method, or a missing class, is named."""
    monkeypatch.setitem(probes._NAMES, kind, f"{name} no_such_method")
    assert probes.lacking() == [f"{kind}.no_such_method"]
    monkeypatch.setitem(probes._NAMES, f"No{kind}", name)
    assert set(probes.lacking()) == {f"{kind}.no_such_method", f"No{kind}.{name}"}


class _Moved:
    """Renames the private attribute of an official class."""

    def __init__(self, monkeypatch, kind, private):
        monkeypatch.setattr(kind, private, property(self.refuse, lambda *_: None), raising=False)

    def refuse(self, one):
        raise AttributeError(one)


_OPENED = {"Producer": "Client.create_producer()", "Consumer": "Client.subscribe()", "Reader": "Client.create_reader()"}


@pytest.mark.parametrize(
    ("kind", "private", "named"),
    [
        *((getattr(pulsar, kind), f"_{kind.lower()}", named) for kind, named in _OPENED.items()),
        *((getattr(pulsar, kind), "_client", named) for kind, named in _OPENED.items()),
        *((getattr(pulsar.asyncio, kind), f"_{kind.lower()}", f"asyncio.{kind}") for kind in _OPENED),
        (pulsar.MessageId, "_msg_id", "MessageId._msg_id"),
        (pulsar.Message, "_message", "Message._message"),
        (pulsar.MessageBatch, "_msg_batch", "MessageBatch._msg_batch"),
        (pulsar.Producer, "_build_msg", "Producer._build_msg"),
        (pulsar.schema.Schema, "_schema_info", "Schema._schema_info"),
    ],
)
def test_moved_private_attribute_is_reported(monkeypatch, kind, private, named):
    """The check that needs the attribute fails, and importing raises."""
    _Moved(monkeypatch, kind, private)
    assert named in probes.lacking()
    with pytest.raises(ImportError, match=r"pip install pulsar-client==3\.13\.0") as raised:
        probes.require()
    assert len(str(raised.value)) < 300


def test_official_client_lists_its_consumers():
    """An official client keeps its C++ client, and its consumers and readers, where `_native` expects them."""
    client, native = pulsar.Client("pulsar://127.0.0.1:1"), probes._Native()
    assert (consumers_of(client), type(client._client)) == ([], _pulsar.Client)
    client.close()
    consumer = pulsar.Client.subscribe(native, "t", "s")
    assert consumers_of(native) == [consumer, pulsar.Client.create_reader(native, "t", pulsar.MessageId.earliest)]


@pytest.mark.parametrize("method", ["create_producer", "subscribe", "create_reader", "get_topic_partitions"])
def test_official_method_with_other_calls_is_reported(monkeypatch, method):
    """A client's method that calls another method of the C++ client is named."""
    monkeypatch.setattr(pulsar.Client, method, lambda client, *_: client._client.another())
    assert probes.lacking() == [f"Client.{method}()"]


def test_missing_asyncio_reader_is_reported(monkeypatch):
    """A missing asyncio reader, as in pulsar-client 3.12, is named."""
    monkeypatch.delattr(pulsar.asyncio, "Reader")
    assert probes.lacking() == ["asyncio.Reader"]


# -- features ----------------------------------------------------------------------------------------------------------


def _uses():
    """Return a use of each feature that reads C++ objects."""
    configuration, message = _pulsar.ConsumerConfiguration(), _pulsar.Message()
    return {
        _LEVEL: lambda: consumer_settings.set_priority_level(configuration, 1),
        _PROPERTIES: lambda: consumer_settings.set_subscription_properties(configuration, {"a": "b"}),
        _LISTENER: lambda: consumer_settings.set_event_listener(configuration, None),
        _REPLICATED: lambda: replicated.replicated_from(message),
        _INDEX: lambda: message_index.index_of(message),
    }


@pytest.mark.parametrize("builds", [(), (b"built by another compiler",)])
def test_binding_without_addresses_raises(monkeypatch, builds):
    """Features raise if the binding does not provide addresses of C++ objects; everything else works."""
    monkeypatch.setattr(c_api, "_builds", lambda: builds)
    assert unavailable_features().keys() == _uses().keys()
    for use in _uses().values():
        with pytest.raises(InvalidUse, match=r"another object layout than 3\.13\.0 for Linux"):
            use()


def test_class_without_type_info_raises(monkeypatch):
    """An object is not read if the library does not export its type or pybind11 does not answer."""

    class Message:
        """A class without a C++ object."""

    for one in (Message(), object()):
        with pytest.raises(InvalidUse, match="to fly"):
            c_api.address_of(one, "to fly")
    monkeypatch.setattr(c_api._pulsar, "__file__", ctypes.pythonapi._name)
    assert unavailable_features().keys() == _uses().keys()


@pytest.mark.parametrize("feature", [_LEVEL, _PROPERTIES, _LISTENER, _REPLICATED, _INDEX])
def test_wrongly_read_known_object_raises(monkeypatch, feature):
    """Features raise before any change if an object of known content is read incorrectly."""
    monkeypatch.setattr(consumer_settings, "_QUEUE", 1 << 32)
    monkeypatch.setattr(consumer_settings.ConsumerConfiguration, "receiver_queue_size", lambda *_: None)
    monkeypatch.setattr(consumer_settings, "_WITNESS", {b"a": b"x\0y"})
    monkeypatch.setattr(consumer_settings, "_IS_SET", "_ZNK6pulsar21ConsumerConfiguration15isReadCompactedEv")
    monkeypatch.setattr(replicated, "_WITNESS", "\0")
    monkeypatch.setattr(message_index, "_LENGTH", "8getIndex")
    with pytest.raises(InvalidUse, match="nothing was changed") as raised:
        _uses()[feature]()
    assert feature not in (_REPLICATED, _INDEX) or "PulsarAdmin.entry(" in str(raised.value)
    assert feature in unavailable_features()


def test_other_struct_layout_raises(monkeypatch):
    """A C message with another layout is not read, and a map that is not a `std::map` is not filled."""
    monkeypatch.setattr(replicated, "_has_known_layout", lambda: False)
    monkeypatch.setattr(consumer_settings, "_is_empty_map", lambda _: False)
    assert unavailable_features().keys() == {_PROPERTIES, _REPLICATED}


@pytest.mark.parametrize(
    "text", ["Message(seq=4321, prod=p, )", "Message(prod=p, seq=)", "Message(prod=pp, seq=5,", ""]
)
def test_unexpected_message_text_raises(text):
    """A sequence id in an unexpected text raises."""
    assert messages.sequence_id_of("Message(prod=p, seq=4321, …", "p") == 4321
    with pytest.raises(InvalidUse, match="sequence id"):
        messages.sequence_id_of(text, "p")


def test_wrong_sequence_ids_disable_the_feature(monkeypatch):
    """The feature is unavailable if a message shows another sequence id than it was built with."""
    monkeypatch.setattr(messages, "InnerMessageBuilder", Builder)
    assert unavailable_features().keys() == {_SLOTS}


class Builder:
    """Builds messages that show another sequence id."""

    def sequence_id(self, _):
        """Accept the sequence id."""

    def build(self):
        """Return a message's text."""
        return "Message(prod=, seq=0, publish_time=0)"


def _forgets(schema, *_):
    return schema._schema


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (pulsar.schema.AvroSchema, "_get_writer_schema", _forgets),
        (pulsar.schema.AvroSchema, "_get_writer_schema", None),
        (pulsar.schema.AvroSchema, "decode_message", lambda schema, one: schema.decode(one.data())),
        (schemas, "without_writers", lambda schema: schema),
    ],
)
def test_avro_that_swaps_fields_raises(monkeypatch, owner, name, value):
    """Nothing is decoded if fields would be read by the reader's schema or another broker's."""
    monkeypatch.setattr(owner, name, value)
    assert unavailable_features().keys() == {_AVRO}
    schema = pulsar.schema.AvroSchema(None, {"type": "record", "name": "A", "fields": []})
    with pytest.raises(InvalidUse, match="was not decoded"):
        schemas.value_of(schema, _Valued())


class _Valued:
    """A message with a value."""

    def has_null_value(self):
        return False


# -- where it is shown -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_version_command_lists_unavailable_features(monkeypatch, capsys, as_json):
    """`pulsar-ext --version` names both versions, each unavailable feature, and the reason."""
    monkeypatch.setattr(c_api, "_builds", lambda: ())
    command_line()(["--version", *(["--json"] if as_json else [])], result_action="return_value")
    shown = capsys.readouterr().out
    if as_json:
        assert json.loads(shown)["not_used"] == unavailable_features()
    else:
        first, native, *rest = shown.splitlines()
        assert native.startswith("native core: ")
        assert first == f"pulsar_ext {pulsar_ext.__version__}, pulsar-client {pulsar.__version__}"
        assert rest == [f"not used: {feature}: {why}" for feature, why in unavailable_features().items()]
