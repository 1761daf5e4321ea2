"""What every schema of this library is besides an official one: typed by its values, and one client's."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Generic, Self

from pulsar_ext._native.schemas import without_writers

from .reading import SchemaText, cannot_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVar

    from pulsar_ext._native.schemas import Encoded
    from pulsar_ext.admin import PulsarAdmin

    T = TypeVar("T", default=Any)
    """The type of values; who names none, as in `Consumer` without brackets, means any."""
else:
    from typing import TypeVar

    T = TypeVar("T")


class TypedSchema(Generic[T]):
    """A schema whose values are of one type; stands before the official class."""

    reads_null_values = False
    """Whether it decodes messages without a value itself; otherwise they are None."""

    if TYPE_CHECKING:  # what the official classes have
        _record_cls: Any

        def encode(self, obj: T) -> bytes:
            """Write a value."""
            ...

        def decode(self, data: bytes) -> T:
            """Read a value that this very schema wrote."""
            ...

        def decode_message(self, msg: Encoded) -> T:
            """Read a message."""
            ...

        def schema_info(self) -> Any:
            """Give what the broker is told."""
            ...

        def attach_client(self, client: Any) -> None:
            """Take the C++ client that is asked for versions."""
            ...

    def of_client(self, admin_api: Callable[[], PulsarAdmin], *, reads: bool) -> Self:
        """Give a copy for one client: what it learns of topics is that client's.

        Args:
            admin_api: gives the admin API, for what only that knows.
            reads: whether it is a consumer's or a reader's.
        """
        mine: Any = copy.copy(self)
        mine.begin(admin_api, reads=reads)
        return mine  # type: ignore[no-any-return]

    def begin(self, admin_api: Callable[[], PulsarAdmin], *, reads: bool) -> None:
        """Know nothing of any topic yet."""

    @property
    def is_compared(self) -> bool:
        """Whether topics are compared with it; not with what the official client reads by rules of its own."""
        return True

    def settle(self, theirs: Callable[[], tuple[str, str] | None], /) -> None:
        """Write as others read on the topic that is opened.

        Args:
            theirs: asks the broker for the type and the definition of the topic's last schema; None if it has none.
        """

    def register(self, topic: str) -> None:
        """Give a topic the schema, where the C++ client cannot."""

    def cannot_read(self, topic: str, theirs: Callable[[], tuple[str, str] | None], /) -> tuple[str, ...]:
        """Give what keeps this from reading what a topic's last schema writes.

        Args:
            topic: its name.
            theirs: asks the broker for the type and the definition of that schema.
        """
        del topic
        if not self.is_compared:
            return ()
        found, info = theirs(), self.schema_info()
        return (
            () if found is None else cannot_read(SchemaText(info.schema_type().name, info.schema()), SchemaText(*found))
        )


def of_another_cluster(schema: Any, number: int) -> Any:
    """Return a copy of a client's schema for messages of the cluster of this number: there the versions are others."""
    if isinstance(schema, TypedSchema):
        other: Any = schema.of_client(getattr(schema, "_admin_api", None), reads=True)  # type: ignore[arg-type]  # its own
    else:
        other = without_writers(schema)
    if (versions := getattr(other, "_client", None)) is not None:
        other.attach_client(versions.at(number))
    return other
