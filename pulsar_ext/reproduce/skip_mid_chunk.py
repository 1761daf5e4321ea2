"""The broker's skip ends inside a chunked message, and the remaining chunks stay in the backlog forever."""

from ._support import Client, Counts, Env, skip_and_receive


def run(pulsar: Client, env: Env) -> Counts:
    """Send three messages of three chunks, and skip one message."""
    contents = [env.chunked(label) for label in ("first", "second", "third")]
    return skip_and_receive(pulsar, env, contents, 1, chunking_enabled=True, batching_enabled=False)
