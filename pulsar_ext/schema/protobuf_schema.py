"""Protobuf messages as they are, typed."""

from __future__ import annotations

import pulsar.schema

from .typed import T, TypedSchema

__all__ = ["ProtobufNativeSchema"]


class ProtobufNativeSchema(TypedSchema[T], pulsar.schema.ProtobufNativeSchema):  # type: ignore[misc]  # untyped
    """Values of a class that protobuf made; mirrors Java's `Schema.PROTOBUF_NATIVE`.

    Args:
        record_cls: the class.

    Raises:
        TypeError: it is no such class, as officially.
    """

    def __init__(self, record_cls: type[T]) -> None:
        super().__init__(record_cls)
