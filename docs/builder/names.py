"""The public names, and the page of the reference for each."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from typing import Final

import pulsar_ext
from pulsar_ext._native import exports

from .pages import ROOT

__all__ = ["PAGES", "members_of", "names_of_official", "names_on", "public_names"]

_MODULES: Final = (
    "pulsar_ext",
    "pulsar_ext.asyncio",
    "pulsar_ext.testing",
    "pulsar_ext.spark",
    "pulsar_ext.spark.jobs",
    "pulsar_ext.otel",
    "pulsar_ext.faststream",
    "pulsar_ext.faststream.opentelemetry",
    "pulsar_ext.faststream.prometheus",
    "pulsar_ext.admin",
    "pulsar_ext.reproduce",
)

PAGES: Final = {
    "client": ("Client", ("client",)),
    "messages": ("Messages and ids", ("ids", "message", "chunks", "schema", "schemas")),
    "producers": ("Producers", ("producer", "produce", "dedup")),
    "consumers": (
        "Consumers and readers",
        ("consumer", "reader", "reading", "table_view", "receive", "ack", "redelivery"),
    ),
    "keys": ("Keys", ("key_shared",)),
    "interceptors": ("Interceptors", ("intercept",)),
    "operations": ("Skip, look and doctor", ("skip", "look", "doctor")),
    "admin": ("Admin API", ("admin",)),
    "asyncio": ("asyncio", ("asyncio",)),
    "errors": ("Errors and warnings", ("errors",)),
    "testing": ("Testing", ("testing",)),
    "integrations": ("Spark, OpenTelemetry and FastStream", ("spark", "otel", "faststream")),
    "reproduce": ("Reproduce", ("reproduce",)),
}
"""The pages: a title, and the packages whose names are on it. All other names are on the client's page."""


def public_names() -> list[str]:
    """Return this library's public names with their modules, in order: `pulsar_ext.Client` and so on."""
    official = names_of_official()
    found: dict[int, str] = {}
    for module in _MODULES:
        for name in importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if not (module == "pulsar_ext" and name in official) and not inspect.ismodule(value):
                found.setdefault(id(value), f"{module}.{name}")
    return list(found.values())


def names_of_official() -> list[str]:
    """Return the names of `pulsar_ext` that are the official client's, unchanged."""
    theirs = exports.PUBLIC_NAMES
    return [
        name
        for name in pulsar_ext.__all__
        if name in theirs and getattr(pulsar_ext, name) is theirs[name] and name not in exports.INCIDENTAL_NAMES
    ]


def names_on(page: str) -> list[str]:
    """Return the public names of a page."""
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


def members_of(name: str) -> list[str] | None:
    """Return the public members of a class, None for all.

    A subclass of an official class also has methods for the rest of this library. Only official members, and those that
    the documents mention, are public.
    """
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    official = [one for one in getattr(value, "__mro__", ()) if one.__module__.partition(".")[0] == "pulsar"]
    awaited = module == "pulsar_ext.asyncio"
    if not (official or awaited) or issubclass(value, BaseException | Warning):
        return None
    theirs = {one for base in official for one in vars(base)}
    members = [one for one in dir(value) if not one.startswith("_")]
    return [one for one in members if one in theirs or re.search(rf"\.{one}\b|\b{one}\(", _documents())]


@cache
def _documents() -> str:
    """Return the text of all documents."""
    files = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "how-to").glob("*.md"),
    ]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.name != "house.md")
