"""Which public names there are, and which page of the reference each is on."""

from __future__ import annotations

import importlib
import inspect
from typing import Final

import pulsar_ext
from pulsar_ext._native import exports

__all__ = ["PAGES", "names_of_official", "names_on", "public_names"]

_MODULES: Final = (
    "pulsar_ext",
    "pulsar_ext.asyncio",
    "pulsar_ext.testing",
    "pulsar_ext.spark",
    "pulsar_ext.spark.jobs",
    "pulsar_ext.otel",
    "pulsar_ext.admin",
    "pulsar_ext.reproduce",
)

PAGES: Final = {
    "client": ("Client", ("client",)),
    "messages": ("Messages and ids", ("ids", "message", "chunks", "schema", "schemas")),
    "producers": ("Producers", ("producer", "produce", "dedup")),
    "consumers": ("Consumers and readers", ("consumer", "reader", "table_view", "receive", "ack", "redelivery")),
    "keys": ("Keys", ("key_shared",)),
    "interceptors": ("Interceptors", ("intercept",)),
    "operations": ("Skip and doctor", ("skip", "doctor")),
    "admin": ("Admin API", ("admin",)),
    "asyncio": ("asyncio", ("asyncio",)),
    "errors": ("Errors and warnings", ("errors",)),
    "testing": ("Testing", ("testing",)),
    "integrations": ("Spark and OpenTelemetry", ("spark", "otel")),
    "reproduce": ("Reproduce", ("reproduce",)),
}
"""The pages: a title, and the rooms of the house whose names are there. What fits nowhere is on the client's page."""


def public_names() -> list[str]:
    """Give every public name of this library's own with its module, in order: `pulsar_ext.Client` and so on."""
    official = names_of_official()
    found: dict[int, str] = {}
    for module in _MODULES:
        for name in importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if not (module == "pulsar_ext" and name in official) and not inspect.ismodule(value):
                found.setdefault(id(value), f"{module}.{name}")
    return list(found.values())


def names_of_official() -> list[str]:
    """Give the names of `pulsar_ext` that are the official client's, unchanged."""
    theirs = exports.PUBLIC_NAMES
    return [
        name
        for name in pulsar_ext.__all__
        if name in theirs and getattr(pulsar_ext, name) is theirs[name] and name not in exports.INCIDENTAL_NAMES
    ]


def names_on(page: str) -> list[str]:
    """Give the public names of a page."""
    return [name for name in public_names() if _page_of(name) == page]


def _page_of(name: str) -> str:
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    if inspect.isclass(value) and issubclass(value, Warning):
        return "errors"
    home = module
    if module == "pulsar_ext":
        home = getattr(value, "__module__", module)
    room = home.removeprefix("pulsar_ext").strip(".").partition(".")[0]
    return next((page for page, (_, rooms) in PAGES.items() if room in rooms), "client")
