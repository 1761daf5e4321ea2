"""What the installed official client has to be like: proved on objects, and refused by name if it is not."""

from __future__ import annotations

import ctypes
import json

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema
import pytest

import pulsar_ext
from pulsar_ext._native import (
    c_api,
    consumer_settings,
    event_listener,
    messages,
    probes,
    replicated,
    schemas,
)
from pulsar_ext.cli import command_line
from pulsar_ext.client.features import FEATURES, refused_features
from pulsar_ext.errors import InvalidUse

_LEVEL, _PROPERTIES, _LISTENER, _REPLICATED, _SLOTS, _AVRO = FEATURES


@pytest.fixture(autouse=True)
def _proved_again():
    """Have each feature be proved in this test, and again after it."""
    caches = [one for one in (*FEATURES.values(), c_api._type_info, c_api._builds) if hasattr(one, "cache_clear")]
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_everything_works_with_the_installed_client(monkeypatch):
    """Whatever its version says: nothing is missing, and no feature is refused."""
    monkeypatch.setattr(pulsar, "__version__", "3.99.0")
    assert probes.lacking() == []
    assert refused_features() == {}


@pytest.mark.parametrize(("kind", "name"), [(kind, names.split()[0]) for kind, names in probes._NAMES.items()])
def test_a_name_that_the_binding_lacks_is_named(monkeypatch, kind, name):
    """A C++ class without a method that is called, or no such class at all."""
    monkeypatch.setitem(probes._NAMES, kind, f"{name} no_such_method")
    assert probes.lacking() == [f"{kind}.no_such_method"]
    monkeypatch.setitem(probes._NAMES, f"No{kind}", name)
    assert set(probes.lacking()) == {f"{kind}.no_such_method", f"No{kind}.{name}"}


class _Moved:
    """Stands before an official class whose private attribute has another name."""

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
def test_a_private_attribute_that_moved_is_named(monkeypatch, kind, private, named):
    """The attempt that needs it finds out, and importing raises."""
    _Moved(monkeypatch, kind, private)
    assert named in probes.lacking()
    with pytest.raises(ImportError, match=r"pip install pulsar-client==3\.13\.0") as raised:
        probes.require()
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("method", ["create_producer", "subscribe", "create_reader", "get_topic_partitions"])
def test_an_official_method_that_calls_another_is_named(monkeypatch, method):
    """A client's method that asks its C++ client for something else than what is answered here."""
    monkeypatch.setattr(pulsar.Client, method, lambda client, *_: client._client.another())
    assert probes.lacking() == [f"Client.{method}()"]


def test_no_asyncio_reader_is_named(monkeypatch):
    """As with pulsar-client 3.12."""
    monkeypatch.delattr(pulsar.asyncio, "Reader")
    assert probes.lacking() == ["asyncio.Reader"]


# -- features ----------------------------------------------------------------------------------------------------------


def _uses():
    """Return what uses each feature that reads C++ objects."""
    configuration, message = _pulsar.ConsumerConfiguration(), _pulsar.Message()
    return {
        _LEVEL: lambda: consumer_settings.set_priority_level(configuration, 1),
        _PROPERTIES: lambda: consumer_settings.set_subscription_properties(configuration, {"a": "b"}),
        _LISTENER: lambda: event_listener.set_event_listener(configuration, None),
        _REPLICATED: lambda: replicated.replicated_from(message),
    }


@pytest.mark.parametrize("builds", [(), (b"built by another compiler",)])
def test_a_binding_built_otherwise_is_refused(monkeypatch, builds):
    """Where the binding does not say where its C++ objects are, none is touched; the rest works."""
    monkeypatch.setattr(c_api, "_builds", lambda: builds)
    assert refused_features().keys() == _uses().keys()
    for use in _uses().values():
        with pytest.raises(InvalidUse, match=r"another way than 3\.13\.0 for Linux, which works"):
            use()


def test_a_class_without_a_type_is_refused(monkeypatch):
    """Where the library does not export the type of a class, or pybind11 does not answer, no object is touched."""

    class Message:
        """No C++ object."""

    for one in (Message(), object()):
        with pytest.raises(InvalidUse, match="to fly"):
            c_api.address_of(one, "to fly")
    monkeypatch.setattr(c_api._pulsar, "__file__", ctypes.pythonapi._name)
    assert refused_features().keys() == _uses().keys()


@pytest.mark.parametrize("feature", [_LEVEL, _PROPERTIES, _LISTENER, _REPLICATED])
def test_a_known_object_that_is_read_otherwise_is_refused(monkeypatch, feature):
    """Where an object of known content is not read back, the feature raises before it changes anything."""
    monkeypatch.setattr(consumer_settings, "_QUEUE", 1 << 32)
    monkeypatch.setattr(consumer_settings._pulsar.ConsumerConfiguration, "receiver_queue_size", lambda *_: None)
    monkeypatch.setattr(consumer_settings, "_WITNESS", {b"a": b"x\0y"})
    monkeypatch.setattr(event_listener, "_IS_SET", "_ZNK6pulsar21ConsumerConfiguration15isReadCompactedEv")
    monkeypatch.setattr(replicated, "_WITNESS", "\0")
    with pytest.raises(InvalidUse, match="was not asked"):
        _uses()[feature]()
    assert feature in refused_features()


def test_a_struct_laid_out_otherwise_is_refused(monkeypatch):
    """A C message whose message is not behind its builder is not read; no map is filled that is not the C++ one."""
    monkeypatch.setattr(replicated, "_is_laid_out_so", lambda: False)
    monkeypatch.setattr(consumer_settings, "_is_empty_map", lambda _: False)
    assert refused_features().keys() == {_PROPERTIES, _REPLICATED}


@pytest.mark.parametrize(
    "text", ["Message(seq=4321, prod=p, )", "Message(prod=p, seq=)", "Message(prod=pp, seq=5,", ""]
)
def test_a_message_text_of_another_form_is_refused(text):
    """A sequence id is read where it is expected, or not at all."""
    assert messages.sequence_id_of("Message(prod=p, seq=4321, …", "p") == 4321
    with pytest.raises(InvalidUse, match="sequence id"):
        messages.sequence_id_of(text, "p")


def test_sequence_ids_that_do_not_show_are_refused(monkeypatch):
    """A message that shows another one than it was given."""
    monkeypatch.setattr(messages, "InnerMessageBuilder", Builder)
    assert refused_features().keys() == {_SLOTS}


class Builder:
    """Builds what shows another sequence id than it was given."""

    def sequence_id(self, _):
        """Take it."""

    def build(self):
        """Return what stands for a message."""
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
def test_avro_that_exchanges_fields_is_refused(monkeypatch, owner, name, value):
    """Where fields would come by the reader's schema, or by one that another broker said, nothing is decoded."""
    monkeypatch.setattr(owner, name, value)
    assert refused_features().keys() == {_AVRO}
    schema = pulsar.schema.AvroSchema(None, {"type": "record", "name": "A", "fields": []})
    with pytest.raises(InvalidUse, match="was not decoded"):
        schemas.value_of(schema, _Valued())


class _Valued:
    """A message that has a value."""

    def has_null_value(self):
        return False


# -- where it is seen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_lists_what_is_not_used(monkeypatch, capsys, as_json):
    """`pulsar-ext --version` names both versions, each feature that is refused, and why."""
    monkeypatch.setattr(c_api, "_builds", lambda: ())
    command_line()(["--version", *(["--json"] if as_json else [])], result_action="return_value")
    shown = capsys.readouterr().out
    if as_json:
        assert json.loads(shown)["not_used"] == refused_features()
    else:
        first, native, *rest = shown.splitlines()
        assert native.startswith("native core: ")
        assert first == f"pulsar_ext {pulsar_ext.__version__}, pulsar-client {pulsar.__version__}"
        assert rest == [f"not used: {feature}: {why}" for feature, why in refused_features().items()]
