"""`pulsar-ext --version`: both versions, and features that the installed official client does not support."""

from __future__ import annotations

import pulsar
from cyclopts import App

from pulsar_ext import __version__, native_status
from pulsar_ext.client.features import unavailable_features

from .arguments import Json
from .output import print_result

app = App(
    name="--version",
    help="Show both versions, and features that the installed pulsar-client does not support.",
    version_flags=[],
)


@app.default
def version(*, as_json: Json = False) -> None:
    """Show both versions, the use of the native core, and features that the installed client does not support."""
    unavailable, native = unavailable_features(), native_status()
    versions = {"pulsar_ext": __version__, "pulsar-client": pulsar.__version__}
    lines = [
        ", ".join(map(" ".join, versions.items())),
        f"native core: {'used' if native.is_used else f'not used: {native.why_not}'}",
        *(f"not used: {feature}: {why}" for feature, why in unavailable.items()),
    ]
    facts = {**versions, "native_core": native._asdict(), "not_used": unavailable}
    print_result(facts if as_json else "\n".join(lines))
