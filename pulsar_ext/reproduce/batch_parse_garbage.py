"""Parsing a damaged batch payload, or bytes that are not a batch, crashes the process."""

import pulsar as official

from ._support import Client, Counts, Env


def parse(pulsar: Client, _env: Env, text: str) -> int:
    """Parse bytes that are not a batch; the program handles an error."""
    try:
        return len(pulsar.MessageBatch().with_message_id(pulsar.MessageId(-1, 1, 1)).parse_from(text.encode(), 3))
    except official.PulsarException:
        return 0


def run(pulsar: Client, env: Env) -> Counts:
    """Parse in a separate process, which may crash."""
    return Counts(ended=env.run_isolated(pulsar, parse, "no batch at all " * 4).ended)
