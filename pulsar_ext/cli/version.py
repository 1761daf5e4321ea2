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
    """Show the versions of pulsar_ext and of pulsar-client, and each feature that this client does not let be used.

    Args:
        as_json: Print one JSON object instead of text.
    """
    from pulsar_ext.client.features import refused_features  # noqa: PLC0415  # no other sub-command waits for it

    refused = refused_features()
    if as_json:
        print_json({"pulsar_ext": __version__, "pulsar-client": pulsar.__version__, "not_used": refused})
        return
    print(f"pulsar_ext {__version__}, pulsar-client {pulsar.__version__}")  # noqa: T201  # the output
    for feature, why in refused.items():
        print(f"not used: {feature}: {why}")  # noqa: T201
