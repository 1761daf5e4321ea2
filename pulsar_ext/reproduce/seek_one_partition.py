"""A seek to an id of one partition drops unread messages of the others."""

from ._support import Client, Counts, Env, labels, send_all

_MESSAGES, _PARTITIONS, _READ = 300, 3, 30
_RECEIVE_MILLIS = 3_000


def run(pulsar: Client, env: Env) -> Counts:
    """Receive 30 of 300 messages of three partitions, acknowledge them, and seek back in one of the partitions."""
    topic = env.topic()
    env.admin.request("PUT", f"{topic}/partitions", _PARTITIONS)
    unread = {f"message {number}" for number in range(_MESSAGES)}
    with env.opened(pulsar) as client:
        producer = client.create_producer(
            topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
        )
        consumer = client.subscribe(topic, "s", receiver_queue_size=20)
        send_all(producer, sorted(unread))
        ids = []
        for _ in range(_READ):
            message = consumer.receive(_RECEIVE_MILLIS)
            unread.discard(message.data().decode())
            ids.append(message.message_id())
            consumer.acknowledge(message)
        consumer.seek(ids[-1])
        again = set(labels(consumer.receive, millis=_RECEIVE_MILLIS))
    return Counts.of(unread, again & unread)
