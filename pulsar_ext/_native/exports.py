"""What `import pulsar` offers, so that `import pulsar_ext as pulsar` offers it too."""

from __future__ import annotations

import sys

import pulsar
import pulsar.schema
import pulsar.tableview

__all__ = ["INCIDENTAL_NAMES", "PUBLIC_NAMES", "alias_submodules"]


INCIDENTAL_NAMES = frozenset({"logging", "re", "timedelta", "Callable", "List", "Tuple", "Optional", "Union"})
"""What `dir(pulsar)` shows only because its source imports it."""

PUBLIC_NAMES = {name: getattr(pulsar, name) for name in dir(pulsar) if not name.startswith("_")}
"""Everything that `import pulsar` offers, by name."""

_COUNTERPARTS = ("pulsar.asyncio", "pulsar.schema")
"""Modules that this library has its own of."""


def alias_submodules(package: str) -> None:
    """Let every sub-module of `pulsar` resolve below `package` too, as the very same module."""
    prefix = "pulsar."
    for name, module in list(sys.modules.items()):
        if name.startswith(prefix) and name not in _COUNTERPARTS:
            sys.modules[f"{package}.{name.removeprefix(prefix)}"] = module
