"""A model's values as Avro bytes, and back, whatever version of the model wrote them (pure)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pulsar_ext.errors import InvalidUse, MissingExtra, SchemaMismatch

from .avro_definition import definition_of, plain_definition, read_definition, shape_of_definition
from .models import shape_of_model
from .reading import Reading, reading_of
from .scalars import Unfit
from .values import writer_of

if TYPE_CHECKING:
    from .shapes import Shape

__all__ = ["AvroModel", "AvroReader"]

T = TypeVar("T")


def _fastavro() -> Any:
    with MissingExtra.named("schemas", "Avro"):
        import fastavro  # noqa: PLC0415  # only who has Avro needs it
    return fastavro


class AvroReader:
    """Reads what one definition wrote as a shape.

    Args:
        definition: the Avro definition that it was written with, as parsed JSON.
        shape: what is read.
    """

    def __init__(self, definition: Any, shape: Shape) -> None:
        self._avro = _fastavro()
        written = shape_of_definition(definition)
        self._plain = self._avro.parse_schema(read_definition(written))
        self._reading: Reading = reading_of(written, shape)

    def read(self, data: bytes) -> Any:
        """Read a value.

        Raises:
            SchemaMismatch: it has something that cannot be read, or these are no such bytes.
        """
        buffer = io.BytesIO(data)
        try:
            plain = self._avro.schemaless_reader(buffer, self._plain, None, return_named_type=True)
            if left := len(data) - buffer.tell():
                raise ValueError(f"{left} bytes are left")  # noqa: TRY301  # as whatever else is wrong with them
        except Exception as error:  # whatever bytes make of it  # noqa: BLE001
            raise SchemaMismatch(
                f"{len(data)} bytes are not Avro of the schema that they are said to be of: {error!r}.", differences=()
            ) from None
        try:
            return self._reading.convert(plain)
        except Unfit as error:
            found = tuple(map(str, self._reading.differences))
            begin = "It was written with another schema, and" if found else "It"
            raise SchemaMismatch(
                f"{begin} cannot be read: {error.path}: {error.why}.",
                differences=found or (f"{error.path}: {error.why}",),
            ) from None


class AvroModel(Generic[T]):
    """The codec of a dataclass or a pydantic model.

    Args:
        model: the class.

    Raises:
        InvalidUse: it has something that Avro has not.
        MissingExtra: fastavro is not installed.
    """

    def __init__(self, model: type[T]) -> None:
        self.shape = shape_of_model(model)
        self.definition = definition_of(self.shape)
        self._avro = _fastavro()
        self._plain = self._avro.parse_schema(plain_definition(self.shape))
        self._write = writer_of(self.shape)
        self._name = model.__name__
        self._own = self.reader(self.definition)

    def encode(self, value: T) -> bytes:
        """Write a value.

        Raises:
            InvalidUse: it is no such model, or something in it is of another type than its annotation.
        """
        try:
            plain = self._write(value)
        except Unfit as error:
            raise InvalidUse(f"{self._name}{error.path} {error.why}. Nothing was sent.") from None
        buffer = io.BytesIO()
        self._avro.schemaless_writer(buffer, self._plain, plain)
        return buffer.getvalue()

    def decode(self, data: bytes) -> T:
        """Read a value that this model wrote."""
        return self._own.read(data)  # type: ignore[no-any-return]

    def reader(self, definition: Any) -> AvroReader:
        """Make what reads values that another definition wrote."""
        return AvroReader(definition, self.shape)
