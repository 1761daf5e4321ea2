"""Protobuf messages as they are, typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar.schema

from .typed import T, TypedSchema

__all__ = ["ProtobufNativeSchema"]


if TYPE_CHECKING:
    _Official = object  # the official class has no types, and would go for any
else:
    _Official = pulsar.schema.ProtobufNativeSchema


class ProtobufNativeSchema(TypedSchema[T], _Official):
    """Values of a class that protobuf made; mirrors Java's `Schema.PROTOBUF_NATIVE`.

    Args:
        record_cls: the class.

    Raises:
        TypeError: it is no such class, as officially.
    """

    def __init__(self, record_cls: type[T]) -> None:
        official: Any = pulsar.schema.ProtobufNativeSchema
        official.__init__(self, record_cls)
