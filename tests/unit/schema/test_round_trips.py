"""Values of models as Avro and JSON, and back; fastavro and other versions of the model read the same."""

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
from pulsar_ext.schema.avro_definition import definition_of, plain_definition, shape_of_definition
from pulsar_ext.schema.avro_schema import AvroReader
from pulsar_ext.schema.models import shape_of_model
from pulsar_ext.schema.reading import differences


def _definition(model):
    return definition_of(shape_of_model(model))


@given(models(), st.data())
def test_any_value_of_a_model_comes_back_from_avro(pair, data):
    """What any dataclass of any types is written as, is read as the same value."""
    model, values = pair
    schema, value = AvroSchema(model), data.draw(values)
    assert schema.decode(schema.encode(value)) == value


@given(models(), st.data())
def test_any_value_of_a_model_comes_back_from_json(pair, data):
    """The same in JSON, which is text that `json` reads."""
    model, values = pair
    schema, value = JsonSchema(model), data.draw(values)
    written = schema.encode(value)
    assert isinstance(json.loads(written), dict)
    assert schema.decode(written) == value


@given(models(), st.data())
def test_fastavro_reads_what_is_written(pair, data):
    """Avro's own code finds the definition valid, and every field in the bytes."""
    model, values = pair
    written = AvroSchema(model).encode(data.draw(values))
    found = fastavro.schemaless_reader(io.BytesIO(written), fastavro.parse_schema(_definition(model)))
    assert found.keys() == {one.name for one in dataclasses.fields(model)}


@given(models())
def test_a_definition_describes_the_shape_that_it_was_made_of(pair):
    """A definition that the broker gives back is the model's: each reads the other, and both lie alike."""
    shape = shape_of_model(pair[0])
    described = shape_of_definition(definition_of(shape))
    assert differences(described, shape) == differences(shape, described) == ()
    assert plain_definition(described) == plain_definition(shape)


@given(evolutions(), st.data())
def test_any_allowed_evolution_reads(versions, data):
    """A later version reads what an earlier one wrote: its fields as they were, and the defaults of new ones."""
    written, values, later = versions
    value = data.draw(values)
    schema = AvroSchema(later)
    reader = AvroReader(_definition(written), shape_of_model(later))
    found = reader.read(AvroSchema(written).encode(value))
    for one in dataclasses.fields(later):
        assert getattr(found, one.name) == getattr(value, one.name, one.default)
    assert schema.decode(schema.encode(found)) == found


@given(fields("abc"), fields("abc"), st.data())
def test_what_has_no_differences_can_be_read(before, after, data):
    """Of any two versions: without differences every value is read, by this library and by fastavro.

    But for bytes that are no text where a text is read: neither reads them.
    """
    written, values = model_of(data.draw, before)
    later = model_of(data.draw, after)[0]
    if differences(shape_of_model(written), shape_of_model(later)):
        return
    encoded = AvroSchema(written).encode(data.draw(values))
    try:
        fastavro.schemaless_reader(io.BytesIO(encoded), _definition(written), _definition(later))
    except UnicodeDecodeError:
        with pytest.raises(SchemaMismatch, match="no str"):
            AvroReader(_definition(written), shape_of_model(later)).read(encoded)
    else:
        AvroReader(_definition(written), shape_of_model(later)).read(encoded)
