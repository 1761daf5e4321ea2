"""Unions in Avro, whose bytes say which branch a value is of: how what reads them says so as well (pure)."""

from __future__ import annotations

from typing import Final

from .scalars import PYTHON_TYPES
from .shapes import Field, Record, Scalar, Shape, Union

__all__ = ["MARKED", "marked_branches"]

MARKED: Final = "value"
"""The field of a record that a scalar is read as."""


def marked_branches(union: Union) -> tuple[Shape, ...]:
    """Give the branches of a union as they are read: fastavro says the name of a record's branch, but of no scalar's.

    So scalars of which Python has one type, as `int` and `long`, are each read as a record of one field: its bytes are
    the same.
    """
    kinds = [PYTHON_TYPES[one.type] if isinstance(one, Scalar) else None for one in union.branches]
    return tuple(
        Record(f"pulsar_ext.union_{one.type}", dict, [Field(MARKED, MARKED, Scalar(one.type))])
        if isinstance(one, Scalar) and kinds.count(PYTHON_TYPES[one.type]) > 1
        else one
        for one in union.branches
    )
