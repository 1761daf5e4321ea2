"""Schemas: everything in `pulsar.schema`, and dataclasses and pydantic models as schemas.

    client.subscribe(topic, "s", schema=Order)              # Avro
    client.create_producer(topic, schema=JsonSchema(Order))

Types are converted to shapes (`shapes.py`); encoding, decoding, definitions and comparisons all work on shapes.
"""

from __future__ import annotations

import pulsar.schema as _official
from pulsar.schema import (
    Array,
    Boolean,
    Bytes,
    BytesSchema,
    CustomEnum,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Null,
    Schema,
    String,
    StringSchema,
)

from pulsar_ext._native.records import Record

from .auto_consume import AutoConsumeSchema, GenericRecord
from .avro_schema import AvroSchema
from .choice import ProtobufNativeSchema
from .json_schema import JsonSchema
from .key_value import KeyValue, KeyValueEncoding, KeyValueSchema
from .models import AvroName, AvroType, Float32, Int32, LocalTimestamp, TimeMillis, TimestampMillis, decimal_type
from .typed import TypedSchema

__all__ = [
    "Array",
    "AutoConsumeSchema",
    "AvroName",
    "AvroSchema",
    "AvroType",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Float32",
    "GenericRecord",
    "Int32",
    "Integer",
    "JsonSchema",
    "KeyValue",
    "KeyValueEncoding",
    "KeyValueSchema",
    "LocalTimestamp",
    "Long",
    "Map",
    "Null",
    "ProtobufNativeSchema",
    "Record",
    "Schema",
    "String",
    "StringSchema",
    "TimeMillis",
    "TimestampMillis",
    "TypedSchema",
    "decimal_type",
]


def __getattr__(name: str) -> object:
    """Return any other name of the official module."""
    return getattr(_official, name)
