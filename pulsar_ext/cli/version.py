"""`pulsar-ext --version`: both versions, and what does not work with the installed official client."""

from __future__ import annotations

import pulsar
from cyclopts import App

from pulsar_ext import __version__

from .arguments import Json  # noqa: TC001  # cyclopts evaluates annotations
from .output import print_json

app = App(
    name="--version",
    help="Show both versions, and what the installed pulsar-client does not let be used.",
    version_flags=[],
)


@app.default
def version(*, as_json: Json = False) -> None:
    """Show both versions, whether the native core is used, and each feature that this client does not let be used.

    Args:
        as_json: Print one JSON object instead of text.
    """
    from pulsar_ext import native_status  # noqa: PLC0415  # no other sub-command waits for it
    from pulsar_ext.client.features import refused_features  # noqa: PLC0415  # no other sub-command waits for it

    refused, native = refused_features(), native_status()
    if as_json:
        versions = {"pulsar_ext": __version__, "pulsar-client": pulsar.__version__}
        print_json({**versions, "native_core": native._asdict(), "not_used": refused})
        return
    print(f"pulsar_ext {__version__}, pulsar-client {pulsar.__version__}")  # noqa: T201  # the output
    print(f"native core: {'used' if native.is_used else f'not used: {native.why_not}'}")  # noqa: T201
    for feature, why in refused.items():
        print(f"not used: {feature}: {why}")  # noqa: T201
