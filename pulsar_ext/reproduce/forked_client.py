"""A client inherited across a fork hangs in the child, and the child's messages are lost."""

import os

import pulsar as official

from ._support import Client, Counts, Env


def fork_and_send(pulsar: Client, env: Env, topic: str, labels: list[str]) -> None:
    """Send a message, fork, and send another from the child, with a new client if the inherited one raises."""
    producer = env.client(pulsar).create_producer(topic)
    producer.send(labels[0].encode())
    child = os.fork()
    if child:
        # If it hangs, it ends with the process group of this scenario.
        os.waitpid(child, 0)
        return
    try:
        producer.send(labels[1].encode())
    except official.PulsarException:
        client = env.client(pulsar)
        client.create_producer(topic).send(labels[1].encode())
        client.close()
    finally:
        os._exit(0)


def run(pulsar: Client, env: Env) -> Counts:
    """Fork in a separate process, and count the stored messages."""
    topic, sent = env.topic(), ["parent's", "child's"]
    outcome = env.run_isolated(pulsar, fork_and_send, topic, sent)
    return Counts.of(sent, env.stored(topic), ended=outcome.ended)
