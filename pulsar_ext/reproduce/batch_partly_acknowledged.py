"""A batch that was partly acknowledged stays in the backlog although the rest was acknowledged, too."""

import time

from ._support import END, RECEIVE_MILLIS, Client, Counts, Env, labels, numbered, send_batch

_MESSAGES, _BEFORE = 10, 4


def run(pulsar: Client, env: Env) -> Counts:
    """Acknowledge four messages of a batch by index, the other six by another consumer, and receive on a third one."""
    topic, sent = env.topic(), numbered(_MESSAGES)
    with env.opened(pulsar) as client:
        consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
        send_batch(client, topic, sent)
        for _ in range(_BEFORE):
            consumer.acknowledge(consumer.receive(RECEIVE_MILLIS))
        consumer.close()
        consumer = client.subscribe(topic, "s")
        received = []
        for _ in sent[_BEFORE:]:
            message = consumer.receive(RECEIVE_MILLIS)
            received.append(message.data().decode())
            consumer.acknowledge(message)
        time.sleep(5.0)
        stuck, _ = env.left_over(topic, "s")
        consumer.close()
        client.create_producer(topic).send(END.encode())
        received += labels(client.subscribe(topic, "s").receive)
    return Counts.of(sent[_BEFORE:], received, stuck=stuck)
