"""After an operator moves a cursor back, the consumer drops messages that it acknowledged cumulatively before."""

import time

from ._support import END, RECEIVE_MILLIS, Client, Counts, Env, labels, numbered, send_all

_ARRIVED_SECONDS = 3.0


def run(pulsar: Client, env: Env) -> Counts:
    """Acknowledge all messages cumulatively, reset the cursor to the first one, and receive them again."""
    topic, sent = env.topic(), numbered(10)
    with env.opened(pulsar) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        send_all(producer, sent)
        received = [consumer.receive(RECEIVE_MILLIS) for _ in sent]
        consumer.acknowledge_cumulative(received[-1])
        time.sleep(_ARRIVED_SECONDS)
        first = received[0].message_id()
        to = {"ledgerId": first.ledger_id(), "entryId": first.entry_id(), "partitionIndex": -1, "batchIndex": -1}
        env.admin.request("POST", f"{topic}/subscription/s/resetcursor", to)
        time.sleep(_ARRIVED_SECONDS)
        producer.send(END.encode())
        again: set[str] = set()
        # `END` may arrive before messages that are recovered later, so receive again.
        for _ in range(2):
            again.update(labels(consumer.receive, millis=8_000))
    return Counts.of(sent, sorted(again))
