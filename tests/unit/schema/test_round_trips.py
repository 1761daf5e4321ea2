"""Round trips of model values in Avro and JSON, compared with fastavro and other versions of the model."""

from __future__ import annotations

import dataclasses
import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schema_models import evolutions, fields, model_of, models

from pulsar_ext.errors import SchemaMismatch
from pulsar_ext.schema import AvroSchema, JsonSchema
from pulsar_ext.schema.avro_definition import Form, definition_of, shape_of_definition
from pulsar_ext.schema.avro_schema import avro_reader
from pulsar_ext.schema.models import shape_of_model
from pulsar_ext.schema.reading import differences


def _definition(model):
    return definition_of(shape_of_model(model))


@given(models(), st.data())
def test_avro_round_trip(pair, data):
    """Values of any dataclass are read back from Avro."""
    model, values = pair
    schema, value = AvroSchema(model), data.draw(values)
    assert schema.decode(schema.encode(value)) == value


@given(models(), st.data())
def test_json_round_trip(pair, data):
    """Values of any dataclass are read back from JSON, which `json` can parse."""
    model, values = pair
    schema, value = JsonSchema(model), data.draw(values)
    written = schema.encode(value)
    assert isinstance(json.loads(written), dict)
    assert schema.decode(written) == value


@given(models(), st.data())
def test_fastavro_reads_our_avro(pair, data):
    """Avro readers such as fastavro accept the definition and read every field."""
    model, values = pair
    written = AvroSchema(model).encode(data.draw(values))
    found = fastavro.schemaless_reader(io.BytesIO(written), fastavro.parse_schema(_definition(model)))
    assert found.keys() == {item.name for item in dataclasses.fields(model)}


@given(models())
def test_definition_round_trips_to_its_shape(pair):
    """The shape of a definition has no differences to the original, and an equal encoding."""
    shape = shape_of_model(pair[0])
    described = shape_of_definition(definition_of(shape))
    assert differences(described, shape) == differences(shape, described) == ()
    assert definition_of(described, Form.PLAIN) == definition_of(shape, Form.PLAIN)


@given(evolutions(), st.data())
def test_later_version_reads_earlier_values(versions, data):
    """A later version reads earlier values unchanged, with defaults for new fields."""
    written, values, later = versions
    value = data.draw(values)
    schema = AvroSchema(later)
    reader = avro_reader(_definition(written), shape_of_model(later))
    found = reader(AvroSchema(written).encode(value))
    for item in dataclasses.fields(later):
        assert getattr(found, item.name) == getattr(value, item.name, item.default)
    assert schema.decode(schema.encode(found)) == found


@given(fields("abc"), fields("abc"), st.data())
def test_values_without_differences_are_read(before, after, data):
    """Values without differences between two versions are read by this library and by fastavro.

    The exception is bytes that are not UTF-8 and are read as text.
    """
    written, values = model_of(data.draw, before)
    later = model_of(data.draw, after)[0]
    if differences(shape_of_model(written), shape_of_model(later)):
        return
    encoded = AvroSchema(written).encode(data.draw(values))
    try:
        fastavro.schemaless_reader(io.BytesIO(encoded), _definition(written), _definition(later))
    except UnicodeDecodeError:
        with pytest.raises(SchemaMismatch, match="not a valid str"):
            avro_reader(_definition(written), shape_of_model(later))(encoded)
    else:
        avro_reader(_definition(written), shape_of_model(later))(encoded)
