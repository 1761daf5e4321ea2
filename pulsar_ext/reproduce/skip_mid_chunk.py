"""The broker's skip cuts a chunked message in two, and its rest stays in the backlog for ever."""

from __future__ import annotations

from ._support import Client, Counts, Env, Scenario, skip_and_receive


def run(pulsar: Client, env: Env) -> Counts:
    """Send three messages of three chunks, and skip one message."""
    contents = [env.chunked(label) for label in ("first", "second", "third")]
    return skip_and_receive(pulsar, env, contents, 1, chunking_enabled=True, batching_enabled=False)


SCENARIO = Scenario(
    name="skip-mid-chunk",
    claim="skipping one of three chunked messages leaves the other two, and nothing of the first",
    reference="docs/reproduce.md#skip-mid-chunk",
    run=run,
    profile="small-chunks",
)
