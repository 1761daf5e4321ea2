"""Print a type stub of the official client's binding, read out of its docstrings.

python typings/binding.py > typings/_pulsar.pyi
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import _pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNATURE = re.compile(r"^(?:\d+\. )?\w+\((?P<arguments>.*)\) -> (?P<result>.+)$")
_IDS = ("earliest", "latest")
_OTHER_NAMES = {
    "typing.SupportsInt": "int",
    r"\bLevel\b": "LoggerLevel",
    "EncryptionKeyInfo|AuthenticationDataProvider": "object",
}
_HEAD = '''# mypy: disable-error-code="override,overload-cannot-match,assignment"
"""The C++ binding of the official client: printed by binding.py."""

import collections.abc
import datetime
import typing
'''


def stub() -> str:
    """Return the stub of the binding that is installed."""
    classes = [value for _, value in sorted(vars(_pulsar).items()) if isinstance(value, type)]
    ordered = sorted(classes, key=lambda one: len(one.__mro__))
    return "\n\n".join([_HEAD, *("\n".join(_class_lines(one)) for one in ordered)]) + "\n"


def _class_lines(one: type) -> Iterator[str]:
    base = one.__mro__[1].__name__
    yield f"class {one.__name__}{'' if base in ('object', 'pybind11_object') else f'({base})'}:"
    methods = [(name, value) for name, value in vars(one).items() if _is_shown(name, value)]
    for name, value in methods:
        yield from _member_lines(one, name, value)
    if not methods:
        yield "    ..."


def _is_shown(name: str, value: Any) -> bool:
    return name == "__init__" or (not name.startswith("_") and (value.__doc__ is not None or not callable(value)))


def _member_lines(one: type, name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property) or type(value).__name__ == "pybind11_static_property":
        found = re.search(r"-> (\S+)$", getattr(value.fget, "__doc__", None) or "")
        yield f"    {name}: {one.__name__ if name in _IDS else _translated(found[1]) if found else 'typing.Any'}"
    elif isinstance(value, one):
        yield f"    {name}: typing.ClassVar[{one.__name__}]"
    else:
        function = value.__func__ if isinstance(value, staticmethod) else value
        found = [match for line in (function.__doc__ or "").splitlines() if (match := _SIGNATURE.match(line.strip()))]
        for match in found:
            if len(found) > 1:
                yield "    @typing.overload"
            if isinstance(value, staticmethod):
                yield "    @staticmethod"
            arguments = _translated(re.sub(r"^self: [\w.]+", "self", match["arguments"]))
            arguments = re.sub(r": str\b", ": str | bytes", arguments)  # a std::string is made of either
            positional = arguments if isinstance(value, staticmethod) else f"{arguments}, /"
            yield f"    def {name}({positional}) -> {_translated(match['result'])}: ..."


def _translated(text: str) -> str:
    names = re.sub(r"pulsar::(?:\w+::)*(\w+)", r"\1", text.replace("_pulsar.", ""))
    for name, shown in _OTHER_NAMES.items():
        names = re.sub(name, shown, names)
    return names


if __name__ == "__main__":
    print(stub(), end="")  # noqa: T201 - its purpose
