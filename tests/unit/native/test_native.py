"""Only `_native` uses the official client's private attributes, and they exist."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pulsar
import pytest

import pulsar_ext
from pulsar_ext._native.messages import truthy
from pulsar_ext.errors import NotOpen


@pytest.mark.parametrize("kind", ["Client", "Producer", "Consumer", "Reader", "Message", "MessageId", "MessageBatch"])
def test_replacements_subclass_the_official_classes(kind):
    """`isinstance` and `issubclass` hold for each class that replaces an official one."""
    assert issubclass(getattr(pulsar_ext, kind), getattr(pulsar, kind))


def test_only_one_package_uses_private_attributes():
    """Modules outside `_native` do not use official private attributes; `inner` is the only access."""
    private = {"_msg_id", "_message", "_producer", "_consumer", "_reader", "_msg_batch"}
    package = Path(inspect.getsourcefile(pulsar_ext)).parent
    found = {}
    for module in package.rglob("*.py"):
        if module.parent.name == "_native":
            continue
        stored = [n for n in ast.walk(ast.parse(module.read_text())) if isinstance(n, ast.Attribute)]
        used = {n.attr for n in stored if not (isinstance(n.value, ast.Name) and n.value.id == "self")} & private
        if used:
            found[module.name] = used
    assert not found


@pytest.mark.parametrize(
    "use",
    [
        lambda: pulsar_ext.Message().data(),
        lambda: pulsar_ext.Message().message_id(),
        lambda: pulsar_ext.Message().value(),
        lambda: pulsar_ext.Producer().send(b"x"),
        lambda: pulsar_ext.Producer().send_async(b"x", None),
        lambda: pulsar_ext.Producer().flush(),
        lambda: pulsar_ext.Producer().close(),
        lambda: pulsar_ext.Consumer().receive(),
        lambda: pulsar_ext.Consumer().receive(10),
        lambda: pulsar_ext.Consumer().batch_receive(),
        lambda: pulsar_ext.Consumer().acknowledge(pulsar_ext.Message()),
        lambda: pulsar_ext.Consumer().close(),
        lambda: pulsar_ext.Reader().read_next(),
        lambda: pulsar_ext.Reader().has_message_available(),
        lambda: pulsar_ext.Reader().close(),
        lambda: pulsar_ext.TableView().get("key"),
        lambda: pulsar_ext.TableView().close(),
    ],
)
def test_unopened_object_raises_not_open(use):
    """Objects made by their constructor raise NotOpen instead of crashing, hanging, or an AttributeError."""
    with pytest.raises(NotOpen):
        use()


def test_false_values_reach_the_official_client():
    """'' and 0 pass the official `if value:` checks with their values; None stays None."""
    assert truthy("") == ""
    assert bool(truthy(""))
    assert truthy(0) == 0
    assert bool(truthy(0))
    assert truthy(None) is None
    assert truthy("key") == "key"
