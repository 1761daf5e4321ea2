"""Models for schema tests, and hypothesis strategies of types, values and evolutions."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Optional

from hypothesis import strategies as st

import pulsar_ext  # noqa: F401  # makes its schemas those of `pulsar_ext.schema`
from pulsar_ext.schema import Float32, Int32, LocalTimestamp, TimeMillis, TimestampMillis, decimal_type


class Color(enum.Enum):
    """An enumeration whose values differ from its names."""

    RED = 1
    GREEN = "g"


@dataclass(frozen=True)
class Point:
    """A small, hashable model."""

    x: int
    label: str = "none"


@dataclass(frozen=True)
class Circle:
    """A second model for unions."""

    radius: float


@dataclass
class Node:
    """A recursive model."""

    value: int
    children: list[Node] = field(default_factory=list)
    other: Node | None = None


Money = Annotated[decimal.Decimal, decimal_type(12, 2)]

_micros = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001  # without a zone
_decimals = st.decimals(allow_nan=False, allow_infinity=False)

SCALARS = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    Int32: st.integers(-(2**31), 2**31 - 1),
    float: st.floats(allow_nan=False),
    Float32: st.floats(allow_nan=False, width=32),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    bytes: st.binary(),
    dt.datetime: _micros.map(lambda one: one.replace(tzinfo=dt.UTC)),
    TimestampMillis: _micros.map(lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000, tzinfo=dt.UTC)),
    LocalTimestamp: _micros,
    dt.date: st.dates(),
    dt.time: st.times(),
    TimeMillis: st.times().map(lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000)),
    decimal.Decimal: _decimals,
    Money: st.decimals(-(10**9), 10**9, places=2),
    uuid.UUID: st.uuids(),
    Color: st.sampled_from(Color),
    Point: st.builds(Point, st.integers(0, 9), st.text("ab")),
    Node: st.builds(Node, st.integers(0, 9), st.lists(st.builds(Node, st.integers(0, 9)), max_size=2)),
}
"""Supported field types, with strategies of their values."""

UNIONS = {
    Point | Circle: st.one_of(SCALARS[Point], st.builds(Circle, SCALARS[float])),
    int | float | str: st.one_of(SCALARS[int], st.floats(allow_nan=False, allow_infinity=False), SCALARS[str]),
    Point | dict[str, int]: st.one_of(SCALARS[Point], st.dictionaries(st.text("ab"), st.integers(0, 9))),
    dt.date | int: st.one_of(SCALARS[dt.date], SCALARS[int]),
    Int32 | dt.datetime: st.one_of(SCALARS[Int32], SCALARS[dt.datetime]),
    TimeMillis | int | None: st.one_of(SCALARS[TimeMillis], SCALARS[int], st.none()),
    bool | list[int] | None: st.one_of(st.booleans(), st.lists(st.integers(0, 9)), st.none()),
}


def kinds():
    """Return a strategy of types, each with a strategy of its values."""
    plain = st.sampled_from([*SCALARS.items(), *UNIONS.items()])
    return st.one_of(plain, plain.flatmap(_composed))


def _composed(pair):
    kind, values = pair
    ways = [
        (list[kind], st.lists(values, max_size=3)),
        (tuple[kind, ...], st.lists(values, max_size=3).map(tuple)),
        (dict[str, kind], st.dictionaries(SCALARS[str], values, max_size=3)),
        (Optional[kind], st.none() | values),  # noqa: UP045  # of any kind
    ]
    return st.sampled_from(ways)


@st.composite
def fields(draw, names="abcdef"):
    """Draw fields of random types: by name, the type, a strategy of its values, and whether it has a default."""
    chosen = draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    return {name: (*draw(kinds()), draw(st.booleans())) for name in chosen}


@st.composite
def models(draw):
    """Draw a dataclass with random fields, some with a default, and a strategy of its values."""
    return model_of(draw, draw(fields()))


def model_of(draw, described):
    """Return a dataclass named Model with the described fields, and a strategy of its values."""
    made, values = [], {}
    for name, (kind, strategy, has_default) in described.items():
        values[name] = strategy
        default = draw(strategy) if has_default else dataclasses.MISSING
        if isinstance(default, list | dict | Node):  # dataclasses reject mutable defaults without a factory
            made.append((name, kind, field(default_factory=list) if isinstance(default, list) else field()))
        else:
            made.append((name, kind, field(default=default)))
    model = make_dataclass("Model", made, kw_only=True)
    return model, st.builds(model, **values)


_INFINITE = (float("inf"), float("-inf"))
WIDER = {Int32: [int, float], int: [float, int | str], Float32: [float], Point: [Point | Circle], str: [str | None]}
"""Types to which a type may be widened."""


def _is_in_json(default):
    """Return whether a JSON definition can have this default; new fields need one to read older messages."""
    return default not in _INFINITE


@st.composite
def evolutions(draw):
    """Draw a model, a strategy of its values, and a later version that can read them."""
    before = draw(fields())
    after = {}
    for name in draw(st.permutations(list(before))):
        kind, strategy, has_default = before[name]
        match draw(st.sampled_from(["keep", "drop", "widen", "nullable"])):
            case "drop" if len(before) > 1:
                continue
            case "widen" if kind in WIDER:
                kind = draw(st.sampled_from(WIDER[kind]))
            case "nullable":
                kind = Optional[kind]  # noqa: UP045  # of any kind
        after[name] = (kind, strategy, has_default)
    for name in draw(st.lists(st.sampled_from("uvw"), unique=True)):
        kind, strategy = draw(st.sampled_from([pair for pair in SCALARS.items() if pair[0] is not Node]))
        after[name] = (kind, strategy.filter(_is_in_json), True)
    written, values = model_of(draw, before)
    return written, values, model_of(draw, after)[0]
