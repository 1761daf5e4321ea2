"""Public names of `pulsar`, which `pulsar_ext` exports as well."""

from __future__ import annotations

import sys

import pulsar
import pulsar.schema
import pulsar.tableview

INCIDENTAL_NAMES = frozenset({"logging", "re", "timedelta", "Callable", "List", "Tuple", "Optional", "Union"})
"""Names in `dir(pulsar)` that its source only imports."""

PUBLIC_NAMES = {name: getattr(pulsar, name) for name in dir(pulsar) if not name.startswith("_")}
"""All public names of `pulsar` and their values."""

_COUNTERPARTS = ("pulsar.asyncio", "pulsar.schema")
"""Modules that this library replaces by its own."""


def alias_submodules(package: str) -> None:
    """Make every submodule of `pulsar` importable below `package`, as the same module object."""
    prefix = "pulsar."
    for name, module in list(sys.modules.items()):
        if name.startswith(prefix) and name not in _COUNTERPARTS:
            sys.modules[f"{package}.{name.removeprefix(prefix)}"] = module
