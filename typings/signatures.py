"""Print the parameters of the official client's methods that ours lack, or have elsewhere or with another default.

python typings/signatures.py
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pulsar
import pulsar.asyncio

import pulsar_ext
import pulsar_ext.asyncio

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLASSES = ("Client", "Producer", "Consumer", "Reader", "TableView")
_OPENING = ("Client", "__init__")  # the constructors of the other classes are not for users


def missing() -> list[str]:
    """Return one line for each parameter, as it is to be written into ours."""
    return [
        f"{ours.__module__}.{ours.__qualname__}: {parameter}"
        for official, ours in _methods()
        for parameter in _missing_in(inspect.signature(official), inspect.signature(ours))
    ]


def _methods() -> Iterator[tuple[Any, Any]]:
    for official, ours in ((pulsar, pulsar_ext), (pulsar.asyncio, pulsar_ext.asyncio)):
        for kind in (getattr(official, name) for name in _CLASSES if hasattr(official, name)):
            for name, method in vars(kind).items():
                if inspect.isfunction(method) and (not name.startswith("_") or (kind.__name__, name) == _OPENING):
                    yield method, getattr(getattr(ours, kind.__name__), name)


def _missing_in(official: inspect.Signature, ours: inspect.Signature) -> Iterator[inspect.Parameter]:
    own = iter(ours.parameters.values())
    for wanted in official.parameters.values():
        found = next(own, None)
        fits = found is not None and (found.name, found.kind) == (wanted.name, wanted.kind)
        same = wanted.default is wanted.empty or wanted.name == "schema" or (fits and found.default == wanted.default)
        if not (fits and same) and wanted.kind is not wanted.VAR_KEYWORD:
            yield wanted


if __name__ == "__main__":
    print("\n".join(missing()))  # noqa: T201 - its purpose
